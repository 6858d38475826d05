/// Counting the distinct pieces of a corpus.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/hash.hpp>
#include <ilme/text/pretokenizer.hpp>

namespace ilme::text {

/// A table of words with 64-bit counts. Memory: 48 bytes and the word for each distinct one; the text is not kept.
class WordCounter {
 public:
  void add(std::string_view word, std::uint64_t count = 1) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(word)];
    if (slot.count == 0) {
      slot.word = keep(word);
      ++size_;
    }
    slot.count += count;
  }
  void add(const WordCounter& other) {
    other.for_each([&](std::string_view word, std::uint64_t count) { add(word, count); });
  }

  /// Distinct words.
  std::size_t size() const noexcept { return size_; }

  /// Calls `visit(word, count)` for every word, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.count > 0) visit(slot.word, slot.count);
    }
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 18;
  struct Slot {
    std::string_view word;
    std::uint64_t count = 0;  // 0: free
  };

  std::size_t place(std::string_view word) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash_bytes(word) & mask;
    while (slots_[i].count > 0 && slots_[i].word != word) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> old(std::max<std::size_t>(slots_.size() * 2, 1024));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.count > 0) slots_[place(slot.word)] = slot;
    }
  }
  std::string_view keep(std::string_view word) {
    if (word.size() > room_) {
      room_ = std::max(kBlock, word.size());
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
      free_ = blocks_.back().get();
    }
    std::memcpy(free_, word.data(), word.size());
    room_ -= word.size();
    return {std::exchange(free_, free_ + word.size()), word.size()};
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  std::size_t room_ = 0;
};

/// Counts the pieces of `text` line by line, each with its newline, as Hugging Face's `train(files)` reads it.
inline void count_words(const PreTokenizer& pre_tokenizer, std::string_view text, WordCounter& counter) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    pre_tokenizer.split(text.substr(0, end), [&](std::string_view piece) { counter.add(piece); });
    text.remove_prefix(end);
  }
}

}  // namespace ilme::text
