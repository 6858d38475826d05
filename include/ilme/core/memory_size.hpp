/// Sizes of memory: what the machine has free, and sizes as people write them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ilme/core/error.hpp>

namespace ilme {

namespace detail {

/// The number at the start of a file; nothing when there is none ("max").
inline std::optional<std::uint64_t> number_in_file(const char* path) {
  std::ifstream in(path);
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

}  // namespace detail

/// Bytes that this process can still take without swapping: MemAvailable of /proc/meminfo, or what its control group
/// (version 2 or 1) leaves if that is less. Nothing when the system does not say.
inline std::optional<std::uint64_t> available_memory() {
  std::optional<std::uint64_t> available;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) available = std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  constexpr const char* kGroups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, usage_file] : kGroups) {
    const auto limit = detail::number_in_file(limit_file), usage = detail::number_in_file(usage_file);
    if (!limit || !usage) continue;
    available =
        std::min(available.value_or(std::numeric_limits<std::uint64_t>::max()), *limit > *usage ? *limit - *usage : 0);
  }
  return available;
}

/// The bytes of "512", "64 KiB", "1.5GiB" (powers of 1,024: KiB, MiB, GiB, TiB) or "500MB" (powers of 1,000: kB, MB,
/// GB, TB), in either case; `name` says in the InputError which value is wrong.
inline std::uint64_t parse_memory_size(std::string_view text, std::string_view name) {
  const auto fail = [&] { throw InputError(name, ": expected a size as 500MB or 4GiB, found \"", text, "\""); };
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) fail();
  std::string unit;
  for (const char* p = rest; p < text.data() + text.size(); ++p) {
    if (*p != ' ') unit += static_cast<char>(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
  }
  if (unit.ends_with('b')) unit.pop_back();
  const bool binary = unit.ends_with('i');
  if (binary) unit.pop_back();
  const std::size_t power = unit.empty() ? 0 : std::string_view("kmgt").find(unit) + 1;
  if (unit.size() > 1 || (binary && unit.empty()) || power > 4 || (!unit.empty() && power == 0)) fail();
  const double bytes = number * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power));
  if (bytes >= 9e18) fail();
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace ilme
