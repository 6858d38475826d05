/// The memory that the process takes from the machine, all of it: code, heap, tensors, what allocators keep back.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace ilme {

namespace detail {

/// A line of /proc/self/status in bytes; nothing where there is no such file.
inline std::optional<std::uint64_t> status_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  }
  return std::nullopt;
}

}  // namespace detail

/// Bytes of this process that lie in memory now (Linux).
inline std::optional<std::uint64_t> resident_bytes() { return detail::status_bytes("VmRSS:"); }

/// The most since the start of the process or the last reset_resident_peak (Linux).
inline std::optional<std::uint64_t> resident_peak_bytes() { return detail::status_bytes("VmHWM:"); }

/// Makes resident_peak_bytes count from now. False where the system does not let it: the peak then stays that of the
/// whole process.
inline bool reset_resident_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

}  // namespace ilme
