/// The index of a folder of token shards.
///
///   index.json        what ShardIndex holds; written last, so a folder without it is not a data set
///   shard-00000.bin   the token ids, little-endian u16 or u32 (`token_type`), document after document
///   shard-00000.idx   little-endian u64: where each document starts (in tokens, documents + 1 values), then where its
///                     source text starts (in UTF-8 bytes, documents + 1 values)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <zlib.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>

namespace ilme::data {

static_assert(std::endian::native == std::endian::little, "token shards are mapped as they lie on disk");

/// What the shards are made with: their tokenizer and what follows from it.
struct ShardVocabulary {
  std::string tokenizer;  // text::Tokenizer::fingerprint()
  std::uint64_t vocabulary_size = 0;
  std::optional<std::uint32_t> bos_id = std::nullopt, eos_id = std::nullopt;

  bool operator==(const ShardVocabulary&) const = default;
  /// Bytes of one stored token.
  std::size_t token_bytes() const noexcept { return vocabulary_size <= 65536 ? 2 : 4; }
};

struct ShardEntry {
  std::uint64_t tokens = 0, documents = 0, source_bytes = 0;
  std::uint32_t tokens_crc32 = 0, documents_crc32 = 0;  // of the .bin and of the .idx file
};

struct ShardIndex {
  static constexpr std::string_view kFormat = "ilme-token-shards";
  static constexpr std::int64_t kVersion = 1;

  ShardVocabulary vocabulary;
  std::vector<ShardEntry> shards;
  /// What the writer was given to tell a repeated run by (inputs, options); null when it was not told.
  Json made_from;

  std::uint64_t tokens() const { return sum(&ShardEntry::tokens); }
  std::uint64_t documents() const { return sum(&ShardEntry::documents); }
  /// UTF-8 bytes of the documents' text: the denominator of bits per byte.
  std::uint64_t source_bytes() const { return sum(&ShardEntry::source_bytes); }

 private:
  std::uint64_t sum(std::uint64_t ShardEntry::*member) const {
    std::uint64_t total = 0;
    for (const ShardEntry& shard : shards) total += shard.*member;
    return total;
  }
};

/// "shard-00007.bin"; `extension` with its dot.
inline std::string shard_name(std::size_t number, const char* extension) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "shard-" + digits + extension;
}

inline Json to_json(const ShardIndex& index) {
  Json shards = Json::array();
  for (const ShardEntry& shard : index.shards) {
    shards.push_back({{"tokens", shard.tokens},
                      {"documents", shard.documents},
                      {"source_bytes", shard.source_bytes},
                      {"tokens_crc32", shard.tokens_crc32},
                      {"documents_crc32", shard.documents_crc32}});
  }
  const ShardVocabulary& vocabulary = index.vocabulary;
  return {{"format", ShardIndex::kFormat},
          {"version", ShardIndex::kVersion},
          {"token_type", vocabulary.token_bytes() == 2 ? "u16" : "u32"},
          {"tokenizer", vocabulary.tokenizer},
          {"vocabulary_size", vocabulary.vocabulary_size},
          {"bos_id", vocabulary.bos_id ? Json(*vocabulary.bos_id) : Json()},
          {"eos_id", vocabulary.eos_id ? Json(*vocabulary.eos_id) : Json()},
          {"documents", index.documents()},
          {"tokens", index.tokens()},
          {"source_bytes", index.source_bytes()},
          {"shards", std::move(shards)},
          {"made_from", index.made_from}};
}

/// Reads an index file; every fault of its content is an InputError that names the file and the key.
inline ShardIndex read_shard_index(const std::filesystem::path& path) {
  const Json json = read_json(path);
  JsonObject object(json, path.string());
  if (const auto format = object.require<std::string>("format"); format != ShardIndex::kFormat) {
    throw InputError(path.string(), ": \"format\" is \"", format, "\", expected \"", ShardIndex::kFormat, "\"");
  }
  if (const auto version = object.require<std::int64_t>("version"); version != ShardIndex::kVersion) {
    throw InputError(path.string(), ": format version ", version, ", this build reads version ", ShardIndex::kVersion);
  }
  ShardIndex index;
  index.vocabulary.tokenizer = object.require<std::string>("tokenizer");
  index.vocabulary.vocabulary_size = object.require<std::uint64_t>("vocabulary_size");
  if (index.vocabulary.vocabulary_size == 0 || index.vocabulary.vocabulary_size > (std::uint64_t{1} << 32)) {
    throw InputError(path.string(), ": \"vocabulary_size\" is ", index.vocabulary.vocabulary_size);
  }
  for (auto [key, id] :
       {std::pair{"bos_id", &index.vocabulary.bos_id}, std::pair{"eos_id", &index.vocabulary.eos_id}}) {
    if (!object.has(key)) continue;
    const auto value = object.require<std::uint64_t>(key);
    if (value >= index.vocabulary.vocabulary_size) {
      throw InputError(path.string(), ": \"", key, "\" is ", value, ", the vocabulary has ",
                       index.vocabulary.vocabulary_size, " tokens");
    }
    *id = static_cast<std::uint32_t>(value);
  }
  const std::string token_type = index.vocabulary.token_bytes() == 2 ? "u16" : "u32";
  if (const auto found = object.require<std::string>("token_type"); found != token_type) {
    throw InputError(path.string(), ": \"token_type\" is \"", found, "\", a vocabulary of ",
                     index.vocabulary.vocabulary_size, " is stored as ", token_type);
  }
  const Json shards = object.raw("shards");
  if (!shards.is_array()) throw InputError(path.string(), ": key \"shards\" is missing or not a list");
  for (const Json& member : shards) {
    JsonObject shard(member, concat(path.string(), ": shard ", index.shards.size()));
    ShardEntry entry;
    entry.tokens = shard.require<std::uint64_t>("tokens");
    entry.documents = shard.require<std::uint64_t>("documents");
    entry.source_bytes = shard.require<std::uint64_t>("source_bytes");
    entry.tokens_crc32 = shard.require<std::uint32_t>("tokens_crc32");
    entry.documents_crc32 = shard.require<std::uint32_t>("documents_crc32");
    index.shards.push_back(entry);
  }
  const auto expect = [&](const char* key, std::uint64_t total) {
    if (const auto found = object.require<std::uint64_t>(key); found != total) {
      throw InputError(path.string(), ": \"", key, "\" is ", found, ", its shards have ", total);
    }
  };
  expect("tokens", index.tokens());
  expect("documents", index.documents());
  expect("source_bytes", index.source_bytes());
  index.made_from = object.raw("made_from");
  return index;
}

namespace detail {

/// zlib's CRC-32 continued over any number of bytes.
inline std::uint32_t crc32_of(std::uint32_t crc, const void* data, std::size_t size) {
  return static_cast<std::uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), size));
}

}  // namespace detail

}  // namespace ilme::data
