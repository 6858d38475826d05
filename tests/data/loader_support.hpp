/// What the loader's tests share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/shard_writer.hpp>

namespace ilme::test {

using Documents = std::vector<std::vector<std::uint32_t>>;

/// Token j of document i is 100 * (i + 1) + j, so every token tells where it comes from.
inline Documents telling_documents(const std::vector<std::size_t>& lengths, std::uint32_t stride = 100) {
  Documents documents;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    documents.emplace_back(lengths[i]);
    std::iota(documents.back().begin(), documents.back().end(), stride * static_cast<std::uint32_t>(i + 1));
  }
  return documents;
}

/// 37 documents of 1..11 tokens, 222 in all: the case data-resume-exact.
inline Documents resume_documents() {
  return telling_documents({7, 6,  1,  4, 5, 11, 3, 1, 11, 2, 5, 9, 8, 3, 2, 4, 7,  5, 11,
                            3, 11, 10, 9, 3, 11, 6, 4, 3,  9, 8, 4, 8, 1, 3, 3, 11, 10});
}

inline Documents random_documents(std::uint64_t seed, std::size_t count, std::uint64_t longest) {
  std::vector<std::size_t> lengths(count);
  for (std::size_t i = 0; i < count; ++i) {
    lengths[i] = static_cast<std::size_t>(random_bits(seed, i) % (longest + 1));  // empty ones too
  }
  return telling_documents(lengths, 1000);
}

inline data::ShardVocabulary vocabulary(std::uint64_t size = 5000) {
  return {.tokenizer = "0123abcd", .vocabulary_size = size, .bos_id = 1, .eos_id = 2};
}

/// Writes the documents as shards; a document's source bytes are twice its tokens.
inline data::ShardIndex write_shards(const std::filesystem::path& folder, const Documents& documents,
                                     std::uint64_t shard_tokens = 64, std::uint64_t vocabulary_size = 5000) {
  data::ShardWriter writer(folder, vocabulary(vocabulary_size), nullptr, shard_tokens);
  for (const auto& ids : documents) writer.add(ids, 2 * ids.size());
  return writer.finish();
}

/// Overwrites, cuts or lengthens a file behind everyone's back.
inline void put_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline void flip_byte(const std::filesystem::path& path, std::size_t at) {
  std::string bytes = read_file(path);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 0x10);
  put_file(path, bytes);
}

/// The first `count` batches of a source.
template <class Source>
std::vector<data::PackedBatch> take(Source& source, std::int64_t count) {
  std::vector<data::PackedBatch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    auto batch = source.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

/// Input ids of the positions that are not padding of `padding_id`, over several batches.
inline std::vector<std::int64_t> tokens_of(const std::vector<data::PackedBatch>& batches, std::int64_t padding_id) {
  std::vector<std::int64_t> tokens;
  for (const auto& batch : batches) {
    std::copy_if(batch.input_ids.begin(), batch.input_ids.end(), std::back_inserter(tokens),
                 [&](std::int64_t id) { return id != padding_id; });
  }
  return tokens;
}

}  // namespace ilme::test
