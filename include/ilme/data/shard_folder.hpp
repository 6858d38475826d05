/// Folders of token shards as a whole: is one finished, take it away, move it into place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/shard_index.hpp>

namespace ilme::data {

/// The index of a finished folder that was made from `identity`, if there is one and its files are.
inline std::optional<ShardIndex> finished_index(const std::filesystem::path& folder, const ShardVocabulary& vocabulary,
                                                const Json& identity) {
  if (!std::filesystem::exists(folder / "index.json")) return std::nullopt;
  try {
    ShardIndex index = read_shard_index(folder / "index.json");
    if (index.vocabulary != vocabulary || index.made_from != identity) return std::nullopt;
    return index;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

inline bool has_all_shards(const std::filesystem::path& folder, const ShardIndex& index) {
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    std::error_code code;
    const std::uintmax_t bin = std::filesystem::file_size(folder / shard_name(i, ".bin"), code);
    if (code || bin != index.shards[i].tokens * index.vocabulary.token_bytes()) return false;
    const std::uintmax_t idx = std::filesystem::file_size(folder / shard_name(i, ".idx"), code);
    if (code || idx != 16 * (index.shards[i].documents + 1)) return false;
  }
  return true;
}

/// Removes a data set's index and its shards from number `from` on; other files stay.
inline void remove_shards(const std::filesystem::path& folder, std::size_t from) {
  if (!std::filesystem::is_directory(folder)) return;
  std::filesystem::remove(folder / "index.json");
  std::vector<std::filesystem::path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    unsigned long number = 0;
    char extension[4] = {};
    if (std::sscanf(entry.path().filename().c_str(), "shard-%lu.%3s", &number, extension) == 2 && number >= from &&
        entry.path().filename() == shard_name(number, concat('.', extension).c_str())) {
      shards.push_back(entry.path());
    }
  }
  for (const auto& shard : shards) std::filesystem::remove(shard);
}

/// Moves a finished data set to where it is wanted, its index last. May be repeated after an interruption at any point.
inline void publish_shards(const std::filesystem::path& from, const std::filesystem::path& to) {
  const ShardIndex index = read_shard_index(from / "index.json");
  ilme::detail::create_folders(to);
  remove_shards(to, index.shards.size());
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    for (const char* extension : {".bin", ".idx"}) {
      const std::filesystem::path file = from / shard_name(i, extension);
      if (std::filesystem::exists(file)) std::filesystem::rename(file, to / shard_name(i, extension));
    }
  }
  std::filesystem::rename(from / "index.json", to / "index.json");
  ilme::detail::sync_path(to);
}

}  // namespace ilme::data
