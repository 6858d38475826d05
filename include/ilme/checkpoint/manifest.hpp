/// The list that makes a checkpoint folder complete: every file with its size and CRC-32. Without torch.
#pragma once

#include <zlib.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/memory_map.hpp>

namespace ilme::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";

/// CRC-32 (zlib's polynomial) as eight hexadecimal digits.
inline std::string crc32_text(std::string_view bytes) {
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  char text[9];
  std::snprintf(text, sizeof text, "%08lx", static_cast<unsigned long>(crc));
  return text;
}

/// "step-00000010"; more digits when the step needs them.
inline std::string step_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

/// The step of a folder name "step-<digits>"; nothing for any other name ("step-6.tmp").
inline std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0 || name.front() == '-') return std::nullopt;
  return step;
}

struct Manifest {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    std::string crc32;
  };
  std::int64_t step = 0;
  std::uint64_t sequence = 0;  ///< counts the saves into one root: the largest is the newest, whatever its step
  std::string run;             ///< which run saved it; a resumed run keeps the name
  std::vector<File> files;
};

/// Lists `names` in `folder` as they are now and writes manifest.json, whose own checksum covers the list.
inline void write_manifest(const std::filesystem::path& folder, Manifest manifest,
                           const std::vector<std::string>& names) {
  Json files = Json::array();
  for (const std::string& name : names) {
    const MemoryMap map(folder / name);
    files.push_back({{"name", name}, {"size", map.size()}, {"crc32", crc32_text(map.text())}});
  }
  Json json{{"format", 1},
            {"step", manifest.step},
            {"sequence", manifest.sequence},
            {"run", manifest.run},
            {"files", std::move(files)}};
  const std::string checksum = crc32_text(json.dump());
  json["checksum"] = checksum;
  write_json(folder / kManifestName, json);
}

/// Reads manifest.json of `folder`. Throws InputError when it is missing, damaged, or of another format.
inline Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifestName;
  Json json = read_json(path);
  JsonObject object(json, path.string());
  const auto checksum = object.require<std::string>("checksum");
  Json covered = json;
  covered.erase("checksum");
  if (crc32_text(covered.dump()) != checksum) {
    throw InputError(path.string(), ": damaged: its checksum is not ", checksum);
  }
  if (const auto format = object.require<std::int64_t>("format"); format != 1) {
    throw InputError(path.string(), ": checkpoint format ", format, " is not known, expected 1");
  }
  Manifest manifest;
  manifest.step = object.require<std::int64_t>("step");
  manifest.sequence = object.require<std::uint64_t>("sequence");
  manifest.run = object.require<std::string>("run");
  for (const Json& file : object.raw("files")) {
    JsonObject entry(file, path.string());
    manifest.files.push_back({entry.require<std::string>("name"), entry.require<std::uint64_t>("size"),
                              entry.require<std::string>("crc32")});
  }
  const auto named = step_of_name(folder.filename().string());
  if (named && *named != manifest.step) {
    throw InputError(path.string(), ": is of step ", manifest.step, ", in a folder of step ", *named);
  }
  return manifest;
}

/// Throws InputError that names the first file of the manifest that is missing, cut, or has other bytes.
inline void verify_files(const std::filesystem::path& folder, const Manifest& manifest) {
  for (const Manifest::File& file : manifest.files) {
    const auto path = folder / file.name;
    const MemoryMap map(path);
    if (map.size() != file.size) {
      throw InputError(path.string(), ": damaged: ", map.size(), " bytes, expected ", file.size);
    }
    if (const std::string found = crc32_text(map.text()); found != file.crc32) {
      throw InputError(path.string(), ": damaged: its CRC-32 is ", found, ", expected ", file.crc32);
    }
  }
}

}  // namespace ilme::checkpoint
