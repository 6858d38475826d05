/// Reads token shards, memory-mapped (format: data/shard_index.hpp; written by data/shard_writer.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/memory_map.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/data/fingerprint.hpp>
#include <ilme/data/shard_index.hpp>
#include <ilme/data/token_view.hpp>

namespace ilme::data {

/// How closely `TokenShards` looks at a folder before it is used. `sizes` reads the index and the document offsets;
/// `checksums` reads the tokens too, at memory speed once they are cached.
enum class Verify { sizes, checksums };

/// Which of several processes that open the same folder this is: each checks the tokens of every `count`-th shard.
struct VerifyShare {
  std::size_t index = 0, count = 1;
};

/// A folder of token shards as one list of documents. A TokenSource; copies share the mappings; reading is thread-safe.
class TokenShards {
 public:
  /// Opens and validates: sizes against the index, offsets, checksums and ids as `verify` says. Faults are InputErrors
  /// that name the file.
  explicit TokenShards(const std::filesystem::path& folder, Verify verify = Verify::checksums, VerifyShare share = {})
      : mapped_(std::make_shared<const Mapped>(folder, verify, share)) {}

  std::uint64_t document_count() const noexcept { return mapped_->first_document.back(); }
  std::uint64_t token_count() const noexcept { return mapped_->tokens; }
  /// UTF-8 bytes of all documents' text.
  std::uint64_t source_bytes() const noexcept { return mapped_->source_bytes; }

  /// The tokens of document i (BOS and EOS included where the writer put them), valid while a copy of this lives.
  TokenView document(std::uint64_t i) const {
    const auto [shard, local] = find(i);
    const std::uint64_t first = shard->starts[local], count = shard->starts[local + 1] - first;
    const std::byte* data = shard->tokens.bytes().data();
    if (mapped_->index.vocabulary.token_bytes() == 2) {
      return TokenView(std::span(reinterpret_cast<const std::uint16_t*>(data) + first, count));
    }
    return TokenView(std::span(reinterpret_cast<const std::uint32_t*>(data) + first, count));
  }

  /// UTF-8 bytes of document i's text.
  std::uint64_t document_bytes(std::uint64_t i) const {
    const auto [shard, local] = find(i);
    return shard->byte_starts[local + 1] - shard->byte_starts[local];
  }

  const ShardVocabulary& vocabulary() const noexcept { return mapped_->index.vocabulary; }
  const ShardIndex& index() const noexcept { return mapped_->index; }
  const std::filesystem::path& folder() const noexcept { return mapped_->folder; }
  std::string name() const { return folder().string(); }

  /// Tells one content from another: a hash of the tokenizer and of every shard's counts and checksums.
  const std::string& fingerprint() const noexcept { return mapped_->fingerprint; }

  /// Throws when the shards were made with another tokenizer than the one of this fingerprint.
  void require_tokenizer(const std::string& tokenizer_fingerprint) const {
    if (vocabulary().tokenizer == tokenizer_fingerprint) return;
    throw InputError(folder().string(), ": the shards were made with tokenizer ", vocabulary().tokenizer,
                     ", the model's tokenizer is ", tokenizer_fingerprint, "; run ilme-prepare with the model's");
  }

 private:
  struct Shard {
    MemoryMap tokens, offsets;
    std::span<const std::uint64_t> starts, byte_starts;  // documents + 1 each
  };

  struct Mapped {
    std::filesystem::path folder;
    ShardIndex index;
    std::vector<Shard> shards;
    std::vector<std::uint64_t> first_document;  // of each shard, and the total
    std::uint64_t tokens = 0, source_bytes = 0;
    std::string fingerprint;

    Mapped(const std::filesystem::path& where, Verify verify, VerifyShare share) : folder(where) {
      const std::filesystem::path file = folder / "index.json";
      if (!std::filesystem::is_directory(folder)) throw InputError(folder.string(), ": no such folder of token shards");
      if (!std::filesystem::exists(file)) {
        throw InputError(folder.string(), ": has no index.json, so it holds no finished token shards");
      }
      index = read_shard_index(file);
      shards.resize(index.shards.size());
      parallel_for(shards.size(), 0,
                   [&](std::size_t i) { open(i, i % share.count == share.index ? verify : Verify::sizes); });
      first_document.assign(1, 0);
      for (const ShardEntry& entry : index.shards) first_document.push_back(first_document.back() + entry.documents);
      tokens = index.tokens();
      source_bytes = index.source_bytes();
      Json content = to_json(index);
      content.erase("made_from");
      fingerprint = hash_digits(hash_bytes(content.dump()));
    }

    void open(std::size_t i, Verify verify) {
      const ShardEntry& entry = index.shards[i];
      Shard& shard = shards[i];
      const std::filesystem::path bin = folder / shard_name(i, ".bin"), idx = folder / shard_name(i, ".idx");
      shard.tokens = MemoryMap(bin);
      shard.offsets = MemoryMap(idx);
      const std::size_t width = index.vocabulary.token_bytes();
      require_size(bin, shard.tokens.size(), entry.tokens, width);
      if (entry.documents > shard.offsets.size()) throw_size(idx, shard.offsets.size(), entry.documents, "documents");
      require_size(idx, shard.offsets.size(), 2 * (entry.documents + 1), sizeof(std::uint64_t));
      if (detail::crc32_of(0, shard.offsets.bytes().data(), shard.offsets.size()) != entry.documents_crc32) {
        throw InputError(idx.string(), ": checksum differs from the one in index.json; the file is corrupt");
      }
      const auto* values = reinterpret_cast<const std::uint64_t*>(shard.offsets.bytes().data());
      shard.starts = {values, entry.documents + 1};
      shard.byte_starts = {values + entry.documents + 1, entry.documents + 1};
      require_offsets(idx, shard.starts, entry.tokens);
      require_offsets(idx, shard.byte_starts, entry.source_bytes);
      if (verify == Verify::checksums) verify_tokens(bin, shard, entry, width);
    }

    [[noreturn]] static void throw_size(const std::filesystem::path& file, std::size_t size, std::uint64_t count,
                                        const char* unit) {
      throw InputError(file.string(), ": has ", size, " bytes, too few for the ", count, " ", unit, " in index.json");
    }

    static void require_size(const std::filesystem::path& file, std::size_t size, std::uint64_t count,
                             std::size_t width) {
      if (size % width == 0 && size / width == count) return;
      throw InputError(file.string(), ": has ", size, " bytes, index.json says ", count, " values of ", width,
                       " bytes; the file is truncated or of another run");
    }

    static void require_offsets(const std::filesystem::path& file, std::span<const std::uint64_t> offsets,
                                std::uint64_t total) {
      if (offsets.front() == 0 && offsets.back() == total && std::is_sorted(offsets.begin(), offsets.end())) return;
      throw InputError(file.string(), ": its offsets do not ascend from 0 to the ", total, " of index.json");
    }

    void verify_tokens(const std::filesystem::path& file, const Shard& shard, const ShardEntry& entry,
                       std::size_t width) const {
      constexpr std::size_t kBlock = std::size_t{1} << 18;  // stays in the cache between the two passes over it
      const std::byte* data = shard.tokens.bytes().data();
      std::uint32_t crc = 0;
      std::uint32_t largest = 0;
      for (std::size_t at = 0; at < shard.tokens.size(); at += kBlock) {
        const std::size_t size = std::min(kBlock, shard.tokens.size() - at);
        crc = detail::crc32_of(crc, data + at, size);
        if (width == 2) {
          largest = std::max<std::uint32_t>(largest, largest_id<std::uint16_t>(data + at, size));
        } else {
          largest = std::max(largest, largest_id<std::uint32_t>(data + at, size));
        }
      }
      if (crc != entry.tokens_crc32) {
        throw InputError(file.string(), ": checksum differs from the one in index.json; the file is corrupt");
      }
      if (entry.tokens > 0 && largest >= index.vocabulary.vocabulary_size) {
        throw InputError(file.string(), ": holds token id ", largest, ", the vocabulary has ",
                         index.vocabulary.vocabulary_size, " tokens");
      }
    }

    template <class Id>
    static Id largest_id(const std::byte* data, std::size_t bytes) {
      const auto* ids = reinterpret_cast<const Id*>(data);
      Id largest = 0;
      for (std::size_t i = 0; i < bytes / sizeof(Id); ++i) largest = std::max(largest, ids[i]);
      return largest;
    }
  };

  std::pair<const Shard*, std::size_t> find(std::uint64_t document) const {
    const auto& first = mapped_->first_document;
    const auto after = std::upper_bound(first.begin(), first.end(), document);
    const auto shard = static_cast<std::size_t>(after - first.begin()) - 1;
    return {&mapped_->shards[shard], static_cast<std::size_t>(document - first[shard])};
  }

  std::shared_ptr<const Mapped> mapped_;
};

}  // namespace ilme::data
