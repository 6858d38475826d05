/// The inner loop of BPE training: pair counts over the distinct words, kept up to date merge by merge.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/core/resizable_array.hpp>
#include <ilme/text/pair_table.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text::detail {

/// All distinct words lie in one array of symbols, a slot for each byte. A token of n bytes stands in the first and in
/// the last of its n slots, so that both neighbours of any token are one look away. Each pair knows where it may occur;
/// places that have changed since are found out when they are visited.
class MergeEngine {
 public:
  using Pair = std::pair<TokenId, TokenId>;
  struct Options {
    std::uint64_t min_count = 1;      // pairs that are rarer do not merge
    std::size_t max_length = 0;       // bytes; new pairs count while they are shorter together; 0: no limit
    std::size_t vocabulary_size = 0;  // bounds the ids
    std::size_t memory_limit = 0;     // bytes; 0: none
  };

  explicit MergeEngine(Options options)
      : min_count_(static_cast<std::int64_t>(std::clamp<std::uint64_t>(
            options.min_count, 1, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))),
        max_length_(options.max_length > 0 ? options.max_length : std::numeric_limits<std::size_t>::max()),
        memory_limit_(options.memory_limit > 0 ? options.memory_limit : std::numeric_limits<std::size_t>::max()),
        lengths_(options.vocabulary_size, 1),
        left_(options.vocabulary_size),
        right_(options.vocabulary_size) {
    symbols_.push_back(kBoundary);
  }

  /// Sets the bytes of a token that words begin with; 1 unless set.
  void set_length(TokenId token, std::size_t bytes) { lengths_[token] = static_cast<std::uint32_t>(bytes); }

  /// Adds a word of at least two tokens.
  void add_word(std::span<const TokenId> tokens, std::uint64_t count) {
    std::size_t bytes = 0;
    for (const TokenId token : tokens) bytes += lengths_[token];
    bytes_ += bytes;
    ++words_;
    if (!fits()) return;  // refused when all is known
    std::size_t slot = symbols_.size();
    symbols_.resize(slot + bytes + 1);
    for (const TokenId token : tokens) {
      const std::uint32_t length = lengths_[token];
      std::fill_n(&symbols_[slot], length, kInside);
      symbols_[slot] = symbols_[slot + length - 1] = token;
      slot += length;
    }
    symbols_[slot] = kBoundary;
    counts_.push_back(static_cast<std::int64_t>(count));
  }

  /// Counts the pairs; call it once, when all words are there. With `check_length` these pairs, too, must be short
  /// enough. Throws InputError when the words need more memory than the limit.
  void count_pairs(bool check_length) {
    refuse_too_many_words();
    PairNumbers numbers(pairs_, lengths_.size());
    const auto for_each_pair = [&](auto&& visit) {
      std::uint32_t word = 0;
      for (std::uint32_t i = 1; i < symbols_.size();) {
        const std::uint32_t next = i + lengths_[symbols_[i]];
        if (symbols_[next] == kBoundary) {
          ++word;
          i = next + 1;
        } else {
          visit(pairs_[numbers.of(symbols_[i], symbols_[next])], Place{i, word});
          i = next;
        }
      }
    };
    for_each_pair([&](PairRecord& pair, Place place) {
      pair.count += counts_[place.word];
      ++pair.place_count;
    });
    std::size_t total = 0;
    for (PairRecord& pair : pairs_.records()) {
      if (check_length &&
          !short_enough(static_cast<TokenId>(pair.key >> 32), lengths_[static_cast<TokenId>(pair.key)])) {
        pair.count = 0;
      }
      if (pair.count >= min_count_) total += pair.place_count;
      floor_ = std::max(floor_, pair.count);
    }
    Place* places = allocate(total);
    for (PairRecord& pair : pairs_.records()) {
      pair.places = places;
      if (pair.count >= min_count_) places += pair.place_count;
      pair.place_count = 0;
    }
    for_each_pair([&](PairRecord& pair, Place place) {
      if (pair.count >= min_count_) pair.places[pair.place_count++] = place;
    });
    lower_floor();
  }

  /// The pair to merge next; nothing when every pair is rarer than the minimum.
  std::optional<Pair> best_pair() {
    for (;;) {
      while (!heap_.empty()) {
        const Candidate top = heap_.front();
        const std::int64_t count = pairs_[top.record].count;
        if (count == top.count) return Pair(top.key >> 32, static_cast<TokenId>(top.key));
        pop();
        push(count, top.key, top.record);
      }
      if (floor_ <= min_count_) return std::nullopt;
      lower_floor();
    }
  }

  /// Gives up the pair that `best_pair` has just returned: it never merges.
  void skip_best() {
    pairs_[heap_.front().record].count = std::numeric_limits<std::int64_t>::min() / 2;
    pop();
  }

  /// Merges what `best_pair` has just returned into the token `result`, left to right in every word. No merge has made
  /// `result` before: each merge takes all places, so wherever the bytes of a token stand within fixed bounds they
  /// merge in the same order, and no token comes about in two ways. Returns how many places there were, by the counts
  /// of their words.
  std::uint64_t merge_best(TokenId result) {
    const Candidate top = heap_.front();
    pop();
    const auto first = static_cast<TokenId>(top.key >> 32), second = static_cast<TokenId>(top.key);
    const std::uint32_t first_length = lengths_[first], length = first_length + lengths_[second];
    lengths_[result] = length;
    left_.begin();
    right_.begin();
    std::uint64_t merged = 0;
    const std::span<const Place> places = pairs_[top.record].all_places();
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i + kAhead < places.size()) {
        __builtin_prefetch(&symbols_[places[i + kAhead].position]);
        __builtin_prefetch(&counts_[places[i + kAhead].word]);
      }
      const Place place = places[i];
      const std::uint32_t start = place.position, middle = start + first_length;
      if (symbols_[start] != first || symbols_[middle] != second) continue;
      const std::uint32_t end = start + length;
      symbols_[middle - 1] = symbols_[middle] = kInside;
      symbols_[start] = symbols_[end - 1] = result;
      const std::int64_t count = counts_[place.word];
      merged += static_cast<std::uint64_t>(count);
      if (const TokenId left = symbols_[start - 1]; left != kBoundary) {
        left_.lose(left, count);
        if (short_enough(left, length)) left_.gain(left, count, {start - lengths_[left], place.word});
      }
      if (const TokenId right = symbols_[end]; right != kBoundary) {
        right_.lose(right, count);
        if (short_enough(right, length)) right_.gain(right, count, place);
      }
    }
    add_gained(left_, [&](TokenId left) { return PairTable::key_of(left, result); });
    add_gained(right_, [&](TokenId right) { return PairTable::key_of(result, right); });
    for_each_item(
        left_, [&](TokenId left) { return PairTable::key_of(left, first); },
        [&](std::uint64_t key, const Side::Item& item) { lose(key, item.lost); });
    for_each_item(
        right_, [&](TokenId right) { return PairTable::key_of(second, right); },
        [&](std::uint64_t key, const Side::Item& item) { lose(key, item.lost); });
    pairs_[top.record].count = 0;
    return merged;
  }

  /// Bytes in use, or nearly.
  std::size_t memory() const {
    return symbols_.size() * sizeof(TokenId) + counts_.size() * sizeof(std::int64_t) + place_memory_ + pairs_.memory() +
           heap_.capacity() * sizeof(Candidate) + lengths_.size() * 3 * sizeof(std::uint32_t);
  }

 private:
  static constexpr TokenId kBoundary = std::numeric_limits<TokenId>::max(), kInside = kBoundary - 1;
  static constexpr std::size_t kAhead = 12, kBlock = std::size_t{1} << 15;

  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    std::uint32_t record;
    /// "Comes later", for std::make_heap: by count, then the smallest ids.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.count != b.count ? a.count < b.count : a.key > b.key;
    }
  };

  /// What one merge changes on one side, by neighbour.
  class Side {
   public:
    struct Item {
      TokenId neighbour;
      std::uint32_t places = 0;
      std::int64_t gained = 0, lost = 0;
    };
    explicit Side(std::size_t vocabulary_size) : index_(vocabulary_size, 0) {}

    void begin() {
      for (const Item& item : items_) index_[item.neighbour] = 0;
      items_.clear();
      places_.clear();
    }
    void lose(TokenId neighbour, std::int64_t count) { item(neighbour).lost += count; }
    void gain(TokenId neighbour, std::int64_t count, Place place) {
      Item& it = item(neighbour);
      it.gained += count;
      ++it.places;
      places_.emplace_back(index_[neighbour] - 1, place);
    }
    const std::vector<Item>& items() const { return items_; }
    const std::vector<std::pair<std::uint32_t, Place>>& places() const { return places_; }

   private:
    Item& item(TokenId neighbour) {
      std::uint32_t& index = index_[neighbour];
      if (index == 0) {
        items_.push_back({neighbour});
        index = static_cast<std::uint32_t>(items_.size());
      }
      return items_[index - 1];
    }

    std::vector<std::uint32_t> index_;  // of the item + 1, by neighbour
    std::vector<Item> items_;
    std::vector<std::pair<std::uint32_t, Place>> places_;  // with the item's number
  };

  /// Numbers of pairs while they are counted: words of single bytes have few, which a square table finds at once.
  class PairNumbers {
   public:
    PairNumbers(PairTable& pairs, std::size_t vocabulary_size)
        : pairs_(pairs), index_(vocabulary_size, 0), table_(kEdge * kEdge, 0) {}

    std::uint32_t of(TokenId left, TokenId right) {
      const std::size_t row = index(left), column = index(right);
      if (row >= kEdge || column >= kEdge) return pairs_.find_or_add(PairTable::key_of(left, right));
      std::uint32_t& number = table_[row * kEdge + column];
      if (number == 0) number = pairs_.find_or_add(PairTable::key_of(left, right)) + 1;
      return number - 1;
    }

   private:
    static constexpr std::size_t kEdge = 256;
    /// Counts the tokens in the order in which they are seen; the last number stands for all that follow.
    std::size_t index(TokenId token) {
      if (index_[token] == 0) index_[token] = static_cast<std::uint16_t>(std::min(++seen_, kEdge + 1));
      return index_[token] - std::size_t{1};
    }

    PairTable& pairs_;
    std::vector<std::uint16_t> index_;  // + 1, by token; 0: not seen yet
    std::vector<std::uint32_t> table_;  // + 1; 0: not seen yet
    std::size_t seen_ = 0;
  };

  /// Hugging Face's limit: a new pair counts when its length stays below the maximum.
  bool short_enough(TokenId neighbour, std::uint32_t length) const {
    return std::size_t{lengths_[neighbour]} + length < max_length_;
  }

  bool fits() const {
    return bytes_ + words_ < std::numeric_limits<std::uint32_t>::max() / 2 && memory_needed() <= memory_limit_;
  }
  /// Before any pair is counted, from what real corpora take: the slots, two to three places for each, and pairs.
  std::size_t memory_needed() const { return bytes_ * 32 + words_ * 16 + lengths_.size() * 16; }

  void refuse_too_many_words() const {
    if (fits()) return;
    const std::string found = concat(words_, " distinct words of ", format_bytes(static_cast<double>(bytes_)));
    if (memory_needed() <= memory_limit_) throw InputError(found, " are too many to merge, expected less than 2 GiB");
    refuse_memory(concat("merging ", found, " needs about ", format_bytes(static_cast<double>(memory_needed()))));
  }
  [[noreturn]] void refuse_memory(const std::string& need) const {
    throw InputError(
        need, " of memory, but ", format_bytes(static_cast<double>(memory_limit_)),
        " of the budget are left for it; expected a larger memory budget, or fewer words (a minimum count)");
  }

  Place* allocate(std::size_t count) {
    if (count > room_) {
      room_ = std::max(count, kBlock);
      place_memory_ += room_ * sizeof(Place);
      if (memory() > memory_limit_)
        refuse_memory(concat("merging needs more than ", format_bytes(static_cast<double>(memory()))));
      blocks_.push_back(std::make_unique_for_overwrite<Place[]>(room_));
      free_ = blocks_.back().get();
    }
    room_ -= count;
    return std::exchange(free_, free_ + count);
  }

  /// Pairs below the floor wait in the table: few of them ever come up.
  void push(std::int64_t count, std::uint64_t key, std::uint32_t record) {
    if (count < floor_) return;
    heap_.push_back({count, key, record});
    std::push_heap(heap_.begin(), heap_.end());
  }
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  }
  /// Takes those in that have waited long enough; the heap is empty.
  void lower_floor() {
    floor_ = std::max(min_count_, floor_ / 8);
    for (std::uint32_t number = 0; number < pairs_.size(); ++number) {
      if (pairs_[number].count >= floor_) heap_.push_back({pairs_[number].count, pairs_[number].key, number});
    }
    std::make_heap(heap_.begin(), heap_.end());
  }

  void lose(std::uint64_t key, std::int64_t count) {
    // A pair that was never frequent enough has no record.
    if (PairRecord* pair = pairs_.find(key)) pair->count -= count;
  }

  /// Calls `visit(key, item)` for the neighbours on one side, with an eye on the next ones.
  template <class KeyOf, class Visit>
  void for_each_item(const Side& side, KeyOf&& key_of_neighbour, Visit&& visit) {
    const std::vector<Side::Item>& items = side.items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i + kAhead < items.size()) pairs_.prefetch(key_of_neighbour(items[i + kAhead].neighbour));
      visit(key_of_neighbour(items[i].neighbour), items[i]);
    }
  }

  /// Sets the counts and the places of the pairs with a new neighbour on one side.
  template <class KeyOf>
  void add_gained(const Side& side, KeyOf&& key_of_neighbour) {
    std::size_t total = 0;
    starts_.clear();
    for (const Side::Item& item : side.items()) {
      starts_.push_back(total);
      if (item.gained >= min_count_) total += item.places;
    }
    if (total == 0) return;
    Place* const places = allocate(total);
    for (const auto& [item, place] : side.places()) {
      if (side.items()[item].gained >= min_count_) places[starts_[item]++] = place;
    }
    std::size_t i = 0;
    for_each_item(side, key_of_neighbour, [&](std::uint64_t key, const Side::Item& item) {
      const std::size_t end = starts_[i++];
      if (item.gained < min_count_) return;
      const std::uint32_t number = pairs_.find_or_add(key);
      pairs_[number] = {key, item.gained, places + end - item.places, item.places};
      push(item.gained, key, number);
    });
  }

  std::int64_t min_count_, floor_ = 0;  // pairs below the floor are not in the heap
  std::size_t max_length_, memory_limit_, bytes_ = 0, words_ = 0;
  ResizableArray<TokenId> symbols_;
  ResizableArray<std::int64_t> counts_;  // by word
  std::vector<std::uint32_t> lengths_;   // in bytes, by token
  PairTable pairs_;
  std::vector<Candidate> heap_;
  Side left_, right_;
  std::vector<std::size_t> starts_;
  std::vector<std::unique_ptr<Place[]>> blocks_;
  Place* free_ = nullptr;
  std::size_t room_ = 0, place_memory_ = 0;
};

}  // namespace ilme::text::detail
