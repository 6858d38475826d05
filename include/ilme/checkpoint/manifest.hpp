/// The list that makes a checkpoint folder complete: every file with its size and CRC-32. Without torch.
#pragma once

#include <zlib.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
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
inline std::string crc32_text(unsigned long crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08lx", crc);
  return text;
}
inline std::string crc32_text(std::string_view bytes) {
  return crc32_text(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
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
  std::map<std::string, double> metrics;  ///< figures of the saved weights, by name
  std::vector<File> files;
};

/// A file as it is now. Keeps no more than 32 MiB of its pages.
inline Manifest::File describe_file(const std::filesystem::path& path) {
  static constexpr std::size_t kPiece = std::size_t{32} << 20;
  const MemoryMap map(path);
  unsigned long crc = ::crc32_z(0, nullptr, 0);
  for (std::size_t at = 0; at < map.size(); at += kPiece) {
    const std::string_view piece = map.text().substr(at, kPiece);
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
    map.release(at, piece.size());
  }
  return {path.filename().string(), map.size(), crc32_text(crc)};
}

inline Json file_json(const Manifest::File& file) {
  return {{"name", file.name}, {"size", file.size}, {"crc32", file.crc32}};
}
inline Manifest::File file_of_json(const Json& json, const std::string& where) {
  JsonObject entry(json, where);
  return {entry.require<std::string>("name"), entry.require<std::uint64_t>("size"),
          entry.require<std::string>("crc32")};
}

/// Writes manifest.json, whose own checksum covers all that it says.
inline void write_manifest(const std::filesystem::path& folder, const Manifest& manifest) {
  Json json{{"format", 1},         {"step", manifest.step},       {"sequence", manifest.sequence},
            {"run", manifest.run}, {"metrics", manifest.metrics}, {"files", Json::array()}};
  for (const Manifest::File& file : manifest.files) json["files"].push_back(file_json(file));
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
  manifest.metrics = object.get<std::map<std::string, double>>("metrics", {});
  for (const Json& file : object.raw("files")) manifest.files.push_back(file_of_json(file, path.string()));
  const auto named = step_of_name(folder.filename().string());
  if (named && *named != manifest.step) {
    throw InputError(path.string(), ": is of step ", manifest.step, ", in a folder of step ", *named);
  }
  return manifest;
}

/// Throws InputError when a file is missing, cut, or has other bytes.
inline void verify_file(const std::filesystem::path& folder, const Manifest::File& file) {
  const auto path = folder / file.name;
  const Manifest::File found = describe_file(path);
  if (found.size != file.size) {
    throw InputError(path.string(), ": damaged: ", found.size, " bytes, expected ", file.size);
  }
  if (found.crc32 != file.crc32) {
    throw InputError(path.string(), ": damaged: its CRC-32 is ", found.crc32, ", expected ", file.crc32);
  }
}

}  // namespace ilme::checkpoint
