/// Counts of words that do not fit into memory: sorted runs in a scratch file, merged as they are read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/scratch_file.hpp>
#include <ilme/text/word_counter.hpp>

namespace ilme::text {

/// A run holds a table's words in the order of their bytes, each as length, count and bytes; numbers are LEB128.
class WordRuns {
 public:
  /// The scratch file is made in `folder` when it is needed.
  explicit WordRuns(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Writes a run of all the words of `words` and clears it. Thread-safe. Throws RunError when the disk is full.
  void write(WordCounter& words) {
    const std::lock_guard lock(mutex_);
    if (!file_) file_ = std::make_unique<ScratchFile>(folder_);
    const std::uint64_t begin = file_->size();
    std::string buffer;
    buffer.reserve(kBuffer + 64);
    words.take_sorted([&](std::string_view word, std::uint64_t count) {
      append_number(buffer, word.size());
      append_number(buffer, count);
      if (buffer.size() + word.size() > kBuffer) {
        file_->write(buffer.data(), buffer.size());
        buffer.clear();
      }
      if (word.size() > kBuffer) {
        file_->write(word.data(), word.size());
      } else {
        buffer += word;
      }
    });
    file_->write(buffer.data(), buffer.size());
    runs_.push_back({begin, file_->size()});
  }

  std::size_t size() const noexcept { return runs_.size(); }

  /// Calls `visit(word, count)` for every word in the order of their bytes, the counts of all runs added up. Takes
  /// about `memory` bytes, and more only for a single long word or more than a thousandth as many runs.
  template <class Visit>
  void for_each(std::size_t memory, Visit&& visit) const {
    const std::size_t share = std::clamp<std::size_t>(memory / (runs_.size() + 1), 1024, kBuffer);
    std::vector<Reader> readers;
    readers.reserve(runs_.size());
    for (const auto& [begin, end] : runs_) readers.emplace_back(*file_, begin, end, share);
    std::vector<Reader*> heap;
    for (Reader& reader : readers) {
      if (reader.next()) heap.push_back(&reader);
    }
    const auto later = [](const Reader* a, const Reader* b) { return a->word() > b->word(); };
    std::make_heap(heap.begin(), heap.end(), later);
    std::string word;
    while (!heap.empty()) {
      word = heap.front()->word();
      std::uint64_t count = 0;
      while (!heap.empty() && heap.front()->word() == word) {
        std::pop_heap(heap.begin(), heap.end(), later);
        count += heap.back()->count();
        if (heap.back()->next()) {
          std::push_heap(heap.begin(), heap.end(), later);
        } else {
          heap.pop_back();
        }
      }
      visit(std::string_view(word), count);
    }
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 18, kLongestNumber = 10;

  static void append_number(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }

  /// Walks over one run with a buffer that grows only for a word that is longer.
  class Reader {
   public:
    Reader(const ScratchFile& file, std::uint64_t begin, std::uint64_t end, std::size_t buffer)
        : file_(&file), offset_(begin), end_(end), buffer_(buffer) {}

    /// Moves to the next word; false at the end.
    bool next() {
      if (filled_ - position_ < 2 * kLongestNumber) fill(2 * kLongestNumber);
      if (position_ == filled_) return false;
      const std::size_t length = number();
      count_ = number();
      if (filled_ - position_ < length) fill(length);
      word_ = {buffer_.data() + position_, length};
      position_ += length;
      return true;
    }
    std::string_view word() const { return word_; }
    std::uint64_t count() const { return count_; }

   private:
    /// Reads on so that `needed` bytes are there, if the run has them.
    void fill(std::size_t needed) {
      const std::size_t left = filled_ - position_;
      std::memmove(buffer_.data(), buffer_.data() + position_, left);
      if (buffer_.size() < needed) buffer_.resize(needed);
      const std::size_t more = std::min<std::uint64_t>(buffer_.size() - left, end_ - offset_);
      file_->read(buffer_.data() + left, more, offset_);
      offset_ += more;
      position_ = 0;
      filled_ = left + more;
    }
    std::uint64_t number() {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(buffer_[position_++]);
        value |= std::uint64_t{byte & 0x7FU} << shift;
        if (byte < 0x80) return value;
      }
    }

    const ScratchFile* file_;
    std::uint64_t offset_, end_;
    std::vector<char> buffer_;
    std::size_t position_ = 0, filled_ = 0;
    std::string_view word_;
    std::uint64_t count_ = 0;
  };

  std::filesystem::path folder_;
  std::unique_ptr<ScratchFile> file_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs_;  // begin and end in the file
  std::mutex mutex_;
};

}  // namespace ilme::text
