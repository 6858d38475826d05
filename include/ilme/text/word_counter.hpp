/// Counting the distinct pieces of a corpus.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/resizable_array.hpp>
#include <ilme/text/hash.hpp>
#include <ilme/text/normalizer.hpp>
#include <ilme/text/pretokenizer.hpp>

namespace ilme::text {

/// A table of words with 64-bit counts; the text is not kept. Memory: 21 to 43 bytes for each distinct word, and the
/// word.
class WordCounter {
 public:
  WordCounter() = default;
  /// A table that stays below `limit` bytes (at least 1 MiB): when it would grow beyond them, `on_full(*this)` must
  /// empty it with `clear`.
  WordCounter(std::size_t limit, std::function<void(WordCounter&)> on_full)
      : limit_(std::max(limit, std::size_t{1} << 20)), on_full_(std::move(on_full)) {}

  /// Throws InputError when a single word is longer than the limit.
  void add(std::string_view word, std::uint64_t count = 1) { add(word, count, tag_of(word)); }
  /// All of another table.
  void add(const WordCounter& other) {
    for (const Slot& slot : other.slots_) {
      if (slot.count > 0) add(other.word_at(slot.offset), slot.count, slot.tag);
    }
  }

  /// Distinct words.
  std::size_t size() const noexcept { return size_; }
  /// Bytes that the table takes.
  std::size_t memory() const noexcept { return slots_.size() * sizeof(Slot) + words_.capacity(); }

  /// Calls `visit(word, count)` for every word, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.count > 0) visit(word_at(slot.offset), slot.count);
    }
  }

  /// Calls `visit(word, count)` in the order of the words' bytes and forgets them all; takes no further memory.
  template <class Visit>
  void take_sorted(Visit&& visit) {
    const auto end = std::remove_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.count == 0; });
    std::sort(slots_.begin(), end, [&](const Slot& a, const Slot& b) { return word_at(a.offset) < word_at(b.offset); });
    std::for_each(slots_.begin(), end, [&](const Slot& slot) { visit(word_at(slot.offset), slot.count); });
    clear();
  }

  /// Forgets all words and keeps the room.
  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.resize(0);
    size_ = 0;
  }

 private:
  /// In the array of words a word follows its length: one byte, or 255 and four bytes. It starts at a multiple of 4.
  static constexpr std::size_t kUnit = 4, kLongWord = 255;
  struct Slot {
    std::uint64_t count = 0;   // 0: free
    std::uint32_t offset = 0;  // of the word, in units
    std::uint32_t tag = 0;     // of its hash
  };

  static std::uint32_t tag_of(std::string_view word) { return static_cast<std::uint32_t>(hash_bytes(word)); }

  void add(std::string_view word, std::uint64_t count, std::uint32_t tag) {
    if (size_ >= most_ || words_.capacity() - words_.size() < word.size() + 2 * kUnit) make_room(word.size());
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = tag & mask;
    while (slots_[i].count > 0 && !(slots_[i].tag == tag && equal(slots_[i].offset, word))) i = (i + 1) & mask;
    Slot& slot = slots_[i];
    if (slot.count == 0) {
      slot.offset = keep(word);
      slot.tag = tag;
      ++size_;
    }
    slot.count += count;
  }

  std::string_view word_at(std::uint32_t offset) const {
    const char* p = words_.data() + offset * kUnit;
    const auto length = static_cast<unsigned char>(*p);
    if (length < kLongWord) return {p + 1, length};
    return {p + 5, detail::load_word<std::uint32_t>(p + 1)};
  }

  bool equal(std::uint32_t offset, std::string_view word) const {
    const std::string_view kept = word_at(offset);
    if (kept.size() != word.size()) return false;
    const char *a = kept.data(), *b = word.data();
    const std::size_t size = word.size();
    const auto same = [&]<class Word>(Word, std::size_t i) {
      return detail::load_word<Word>(a + i) == detail::load_word<Word>(b + i);
    };
    if (size > 16) return std::memcmp(a, b, size) == 0;
    if (size >= 8) return same(std::uint64_t{}, 0) && same(std::uint64_t{}, size - 8);
    if (size >= 4) return same(std::uint32_t{}, 0) && same(std::uint32_t{}, size - 4);
    return size == 0 || (a[0] == b[0] && a[size / 2] == b[size / 2] && a[size - 1] == b[size - 1]);
  }

  std::uint32_t keep(std::string_view word) {
    const std::size_t begin = (words_.size() + kUnit - 1) / kUnit * kUnit;
    const bool is_long = word.size() >= kLongWord;
    words_.resize(begin + (is_long ? 5 : 1) + word.size());
    char* p = words_.data() + begin;
    *p++ = static_cast<char>(is_long ? kLongWord : word.size());
    if (is_long) {
      const auto length = static_cast<std::uint32_t>(word.size());
      std::memcpy(p, &length, sizeof length);
      p += sizeof length;
    }
    std::memcpy(p, word.data(), word.size());
    return static_cast<std::uint32_t>(begin / kUnit);
  }

  /// Makes the table and the array ready for one more word, in need by handing over those that there are.
  void make_room(std::size_t word_size) {
    const std::size_t slots = size_ >= most_ ? std::max<std::size_t>(slots_.size() * 2, 1024) : slots_.size();
    const std::size_t needed = words_.size() + word_size + 2 * kUnit;
    const std::size_t bytes = needed > words_.capacity()
                                  ? std::max(needed, words_.size() + words_.size() / 2 + (1 << 16))
                                  : words_.capacity();
    // While a table grows the old one is there as well.
    const std::size_t growing = slots > slots_.size() ? slots_.size() : 0;
    if ((slots + growing) * sizeof(Slot) + bytes > limit_ && size_ > 0) {
      on_full_(*this);
      return make_room(word_size);
    }
    if (word_size > std::min<std::size_t>(limit_, std::numeric_limits<std::uint32_t>::max() / 2)) {
      throw InputError("a stretch of ", word_size, " bytes without a place to split, expected less than ", limit_);
    }
    if (bytes / kUnit > std::numeric_limits<std::uint32_t>::max()) {
      throw InputError("the distinct words take more than 16 GiB, expected less (give a memory budget)");
    }
    words_.reserve(bytes);
    if (slots == slots_.size()) return;
    std::vector<Slot> old(slots);
    old.swap(slots_);
    most_ = slots / 8 * 5;
    for (const Slot& slot : old) {
      if (slot.count == 0) continue;
      std::size_t i = slot.tag & (slots - 1);
      while (slots_[i].count > 0) i = (i + 1) & (slots - 1);
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0, most_ = 0;
  ResizableArray<char> words_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::function<void(WordCounter&)> on_full_;
};

/// Counts the pieces of `text` line by line, each normalised with its newline, as Hugging Face's `train(files)` does.
inline void count_words(const PreTokenizer& pre_tokenizer, std::string_view text, WordCounter& counter,
                        const Normalizer& normalizer = {}) {
  const auto count = [&](std::string_view piece) { counter.add(piece); };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    if (normalizer.empty()) {
      pre_tokenizer.split(line, count);
    } else {
      pre_tokenizer.split(normalizer.normalize(line), count);
    }
    text.remove_prefix(end);
  }
}

}  // namespace ilme::text
