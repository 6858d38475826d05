/// The inner loop of BPE training: pair counts over the distinct words, kept up to date merge by merge.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/hash.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/word_counter.hpp>

namespace ilme::text::detail {

/// All distinct words lie in one array of symbols, a slot for each byte. A token of n bytes stands in the first and in
/// the last of its n slots, so that both neighbours of any token are one look away. Each pair knows where it may occur;
/// places that have changed since are found out when they are visited.
class MergeEngine {
 public:
  using Pair = std::pair<TokenId, TokenId>;

  /// `max_length` 0: no limit. `vocabulary_size` bounds the ids.
  MergeEngine(const WordCounter& words, std::uint64_t min_count, std::size_t max_length, std::size_t vocabulary_size)
      : min_count_(static_cast<std::int64_t>(std::clamp<std::uint64_t>(
            min_count, 1, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))),
        max_length_(max_length > 0 ? max_length : std::numeric_limits<std::size_t>::max()),
        lengths_(vocabulary_size, 1),
        left_(vocabulary_size),
        right_(vocabulary_size) {
    std::size_t slots = 1, multibyte = 0;
    words.for_each([&](std::string_view word, std::uint64_t) {
      if (word.size() > 1) {
        slots += word.size() + 1;
        ++multibyte;
      }
    });
    if (slots > std::numeric_limits<std::uint32_t>::max() / 2) {
      throw InputError("the distinct words of the corpus take ", slots, " bytes, expected less than 2 GiB");
    }
    symbols_.reserve(slots);
    counts_.reserve(multibyte);
    symbols_.push_back(kBoundary);
    words.for_each([&](std::string_view word, std::uint64_t count) {
      if (word.size() <= 1) return;
      for (const char c : word) symbols_.push_back(static_cast<unsigned char>(c));
      symbols_.push_back(kBoundary);
      counts_.push_back(static_cast<std::int64_t>(count));
    });
  }

  void set_byte_id(std::uint8_t byte, TokenId id) { byte_ids_[byte] = id; }

  /// Counts the pairs of bytes; call it once, when every byte has its id.
  void count_pairs() {
    struct Tally {
      std::int64_t count = 0;
      std::uint32_t places = 0, record = 0;
    };
    std::vector<Tally> tallies(std::size_t{256} * 256);
    const auto for_each_pair = [&](auto&& visit) {
      std::uint32_t word = 0;
      for (std::uint32_t i = 1; i + 1 < symbols_.size(); ++i) {
        if (symbols_[i] == kBoundary) {
          ++word;
        } else if (symbols_[i + 1] != kBoundary) {
          visit(tallies[symbols_[i] * 256 + symbols_[i + 1]], Place{i, word});
        }
      }
    };
    for_each_pair([&](Tally& tally, Place place) {
      tally.count += counts_[place.word];
      ++tally.places;
    });
    std::size_t total = 0;
    for (const Tally& tally : tallies) total += tally.count >= min_count_ ? tally.places : 0;
    Place* places = allocate(total);
    for (std::size_t i = 0; i < tallies.size(); ++i) {
      Tally& tally = tallies[i];
      if (tally.count < min_count_) continue;
      tally.record = static_cast<std::uint32_t>(records_.size());
      add_record(key_of(byte_ids_[i / 256], byte_ids_[i % 256]), tally.count, {places, tally.places});
      places += std::exchange(tally.places, 0);
    }
    for_each_pair([&](Tally& tally, Place place) {
      if (tally.count >= min_count_) records_[tally.record].places[tally.places++] = place;
    });
    for (TokenId& symbol : symbols_) symbol = symbol == kBoundary ? kBoundary : byte_ids_[symbol];
    std::make_heap(heap_.begin(), heap_.end());
  }

  /// The pair to merge next; nothing when every pair is rarer than the minimum.
  std::optional<Pair> best_pair() {
    while (!heap_.empty()) {
      const Candidate top = heap_.front();
      const std::int64_t count = records_[top.record].count;
      if (count == top.count) return Pair(top.key >> 32, static_cast<TokenId>(top.key));
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (count >= min_count_) push({count, top.key, top.record});
    }
    return std::nullopt;
  }

  /// Merges what `best_pair` has just returned into the token `result`, left to right in every word.
  void merge_best(TokenId result) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const TokenId first = static_cast<TokenId>(top.key >> 32), second = static_cast<TokenId>(top.key);
    const std::uint32_t first_length = lengths_[first], length = first_length + lengths_[second];
    lengths_[result] = length;
    left_.begin();
    right_.begin();
    for (const Place place : records_[top.record].places) {
      const std::uint32_t start = place.position, middle = start + first_length;
      if (symbols_[start] != first || symbols_[middle] != second) continue;
      const std::uint32_t end = start + length;
      symbols_[middle - 1] = symbols_[middle] = kInside;
      symbols_[start] = symbols_[end - 1] = result;
      const std::int64_t count = counts_[place.word];
      if (const TokenId left = symbols_[start - 1]; left != kBoundary) {
        if (left == result) {
          right_.take_back(first, count);  // gained a moment ago, when `first` was still the right neighbour
        } else {
          left_.lose(left, count);
        }
        if (fits(left, length)) left_.gain(left, count, {start - lengths_[left], place.word});
      }
      if (const TokenId right = symbols_[end]; right != kBoundary) {
        right_.lose(right, count);
        if (fits(right, length)) right_.gain(right, count, place);
      }
    }
    for (const Side::Item& item : left_.items()) lose(key_of(item.neighbour, first), item.lost);
    for (const Side::Item& item : right_.items()) lose(key_of(second, item.neighbour), item.lost);
    records_[top.record].count = 0;
    add_gained(left_, [&](TokenId left) { return key_of(left, result); });
    add_gained(right_, [&](TokenId right) { return key_of(result, right); });
  }

 private:
  static constexpr TokenId kBoundary = std::numeric_limits<TokenId>::max(), kInside = kBoundary - 1;

  struct Place {
    std::uint32_t position, word;
  };
  struct Record {
    std::int64_t count;
    std::span<Place> places;
  };
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
    void take_back(TokenId neighbour, std::int64_t count) { item(neighbour).gained -= count; }
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

  /// Record numbers by pair.
  class RecordIndex {
   public:
    /// The number kept for `key`, or a place to put one (0 there means none; numbers are kept plus one).
    std::uint32_t& slot(std::uint64_t key) {
      if ((size_ + 1) * 2 > slots_.size()) grow();
      Slot& found = slots_[place(key)];
      if (found.record == 0) {
        found.key = key;
        ++size_;
      }
      return found.record;
    }
    const std::uint32_t* find(std::uint64_t key) const {
      const Slot& found = slots_[place(key)];
      return found.record != 0 ? &found.record : nullptr;
    }

   private:
    struct Slot {
      std::uint64_t key = 0;
      std::uint32_t record = 0;
    };
    std::size_t place(std::uint64_t key) const {
      const std::size_t mask = slots_.size() - 1;
      std::size_t i = hash_pair(key) & mask;
      while (slots_[i].record != 0 && slots_[i].key != key) i = (i + 1) & mask;
      return i;
    }
    void grow() {
      std::vector<Slot> old(slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.record != 0) slots_[place(slot.key)] = slot;
      }
    }
    std::vector<Slot> slots_ = std::vector<Slot>(1024);
    std::size_t size_ = 0;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

  /// Hugging Face's limit: a new pair counts when its length stays below the maximum.
  bool fits(TokenId neighbour, std::uint32_t length) const {
    return std::size_t{lengths_[neighbour]} + length < max_length_;
  }

  Place* allocate(std::size_t count) {
    blocks_.push_back(std::make_unique_for_overwrite<Place[]>(count));
    return blocks_.back().get();
  }

  void push(Candidate candidate) {
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end());
  }

  void add_record(std::uint64_t key, std::int64_t count, std::span<Place> places) {
    index_.slot(key) = static_cast<std::uint32_t>(records_.size()) + 1;
    heap_.push_back({count, key, static_cast<std::uint32_t>(records_.size())});
    records_.push_back({count, places});
  }

  void lose(std::uint64_t key, std::int64_t count) {
    // A pair that was never frequent enough has no record.
    if (const std::uint32_t* number = index_.find(key)) records_[*number - 1].count -= count;
  }

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
    for (std::size_t i = 0; i < side.items().size(); ++i) {
      const Side::Item& item = side.items()[i];
      if (item.gained < min_count_) continue;
      const std::uint64_t key = key_of_neighbour(item.neighbour);
      const std::span<Place> own(places + starts_[i] - item.places, item.places);
      if (const std::uint32_t* number = index_.find(key)) {
        add_to_record(*number - 1, key, item.gained, own);
      } else {
        add_record(key, item.gained, own);
        std::push_heap(heap_.begin(), heap_.end());
      }
    }
  }

  /// The rare case that the pair is known: its token came about in two ways.
  void add_to_record(std::uint32_t number, std::uint64_t key, std::int64_t count, std::span<Place> more) {
    Record& record = records_[number];
    Place* const all = allocate(record.places.size() + more.size());
    std::merge(record.places.begin(), record.places.end(), more.begin(), more.end(), all,
               [](Place a, Place b) { return a.position < b.position; });
    record.places = {all, record.places.size() + more.size()};
    record.count += count;
    push({record.count, key, number});
  }

  std::int64_t min_count_;
  std::size_t max_length_;
  std::array<TokenId, 256> byte_ids_{};
  std::vector<TokenId> symbols_;
  std::vector<std::int64_t> counts_;    // by word
  std::vector<std::uint32_t> lengths_;  // in bytes, by token
  std::vector<Record> records_;
  RecordIndex index_;
  std::vector<Candidate> heap_;
  Side left_, right_;
  std::vector<std::size_t> starts_;
  std::vector<std::unique_ptr<Place[]>> blocks_;
};

}  // namespace ilme::text::detail
