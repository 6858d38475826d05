/// Writes token shards (format: data/shard_index.hpp); an interrupted run goes on where its last whole shard ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/shard_index.hpp>
#include <ilme/data/token_view.hpp>

namespace ilme::data {

/// Writes documents into a folder of shards. Every finished shard is on disk and noted in `progress.json`;
/// `finish()` writes `index.json`, and only then the folder is a data set. A writer that finds the progress of the same
/// `made_from` keeps those shards: `documents()` says how many documents the caller need not bring again. Anything else
/// that an earlier writer left in the folder is removed.
class ShardWriter {
 public:
  static constexpr std::uint64_t kDefaultShardTokens = std::uint64_t{1} << 27;

  /// `shard_tokens`: a shard is closed with the document that reaches this number.
  ShardWriter(std::filesystem::path folder, ShardVocabulary vocabulary, Json made_from = nullptr,
              std::uint64_t shard_tokens = kDefaultShardTokens)
      : folder_(std::move(folder)), shard_tokens_(shard_tokens) {
    if (shard_tokens_ == 0) throw InputError("tokens per shard: 0, expected at least 1");
    if (vocabulary.vocabulary_size == 0) throw InputError("shards need a vocabulary of at least one token");
    index_.vocabulary = std::move(vocabulary);
    index_.made_from = std::move(made_from);
    ilme::detail::create_folders(folder_);
    take_over_progress();
    remove_leftovers();
    documents_ = index_.documents();
    start_shard();
  }

  /// Appends a document: its tokens (BOS and EOS included where wanted) and the bytes of its source text.
  void add(std::span<const std::uint32_t> ids, std::uint64_t source_bytes) {
    for (const std::uint32_t id : ids) {
      if (id >= index_.vocabulary.vocabulary_size) {
        throw InputError("token id ", id, " is outside the vocabulary of ", index_.vocabulary.vocabulary_size);
      }
    }
    if (index_.vocabulary.token_bytes() == 2) {
      narrow_.assign(ids.begin(), ids.end());
      append(narrow_.data(), narrow_.size() * 2);
    } else {
      append(ids.data(), ids.size() * 4);
    }
    ends_.push_back(ends_.back() + ids.size());
    byte_ends_.push_back(byte_ends_.back() + source_bytes);
    ++documents_;
    if (ends_.back() >= shard_tokens_) close_shard();
  }

  /// Documents written, those of an earlier, interrupted run included.
  std::uint64_t documents() const noexcept { return documents_; }

  /// Writes the index and returns it. Not to be called twice.
  ShardIndex finish() {
    if (ends_.size() > 1) close_shard();
    file_.reset();
    write_json(folder_ / "index.json", to_json(index_));
    std::error_code ignored;
    std::filesystem::remove(folder_ / "progress.json", ignored);
    return index_;
  }

 private:
  void take_over_progress() {
    const std::filesystem::path progress = folder_ / "progress.json";
    if (index_.made_from.is_null() || !std::filesystem::exists(progress)) return;
    try {
      ShardIndex earlier = read_shard_index(progress);
      if (earlier.vocabulary != index_.vocabulary || earlier.made_from != index_.made_from) return;
      for (std::size_t i = 0; i < earlier.shards.size(); ++i) {
        const ShardEntry& shard = earlier.shards[i];
        if (std::filesystem::file_size(folder_ / shard_name(i, ".bin")) !=
                shard.tokens * index_.vocabulary.token_bytes() ||
            std::filesystem::file_size(folder_ / shard_name(i, ".idx")) != 16 * (shard.documents + 1)) {
          return;
        }
      }
      index_.shards = std::move(earlier.shards);
    } catch (const InputError&) {  // unreadable progress: start afresh
    } catch (const std::filesystem::filesystem_error&) {
    }
  }

  void remove_leftovers() {
    std::vector<std::filesystem::path> leftovers;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      bool kept = name == "progress.json" && !index_.shards.empty();
      for (std::size_t i = 0; i < index_.shards.size() && !kept; ++i) {
        kept = name == shard_name(i, ".bin") || name == shard_name(i, ".idx");
      }
      const bool ours = name.starts_with("shard-") || name.starts_with(".shard-") || name.starts_with(".index.json.") ||
                        name.starts_with(".progress.json.") || name == "index.json" || name == "progress.json";
      if (!kept && ours && entry.is_regular_file()) leftovers.push_back(entry.path());
    }
    for (const auto& path : leftovers) std::filesystem::remove(path);
  }

  void start_shard() {
    file_.emplace(folder_ / shard_name(index_.shards.size(), ".bin"));
    crc_ = 0;
    ends_.assign(1, 0);
    byte_ends_.assign(1, 0);
  }

  void append(const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + size);
    if (buffer_.size() >= kBufferBytes) flush_buffer();
  }

  void flush_buffer() {
    crc_ = detail::crc32_of(crc_, buffer_.data(), buffer_.size());
    file_->write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

  void close_shard() {
    flush_buffer();
    file_->commit();
    ShardEntry entry;
    entry.tokens = ends_.back();
    entry.documents = ends_.size() - 1;
    entry.source_bytes = byte_ends_.back();
    entry.tokens_crc32 = crc_;
    AtomicFile offsets(folder_ / shard_name(index_.shards.size(), ".idx"));
    for (const auto* values : {&ends_, &byte_ends_}) {
      const std::size_t size = values->size() * sizeof(std::uint64_t);
      entry.documents_crc32 = detail::crc32_of(entry.documents_crc32, values->data(), size);
      offsets.write(values->data(), size);
    }
    offsets.commit();
    index_.shards.push_back(entry);
    write_json(folder_ / "progress.json", to_json(index_));
    start_shard();
  }

  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  std::filesystem::path folder_;
  std::uint64_t shard_tokens_;
  ShardIndex index_;
  std::uint64_t documents_ = 0;
  std::optional<AtomicFile> file_;  // the .bin of the shard under way
  std::uint32_t crc_ = 0;           // of what was written to it
  std::vector<char> buffer_;        // tokens not written yet
  std::vector<std::uint16_t> narrow_;
  std::vector<std::uint64_t> ends_, byte_ends_;  // of the shard's documents, from 0
};

}  // namespace ilme::data
