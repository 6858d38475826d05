/// What the trainer knows of each pair of neighbouring tokens: how often it occurs, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ilme/core/resizable_array.hpp>
#include <ilme/text/hash.hpp>

namespace ilme::text::detail {

/// A place in the array of all words, and the number of its word.
struct Place {
  std::uint32_t position, word;
};

struct PairRecord {
  std::uint64_t key;  // left id, right id
  std::int64_t count;
  Place* places;
  std::uint32_t place_count;

  std::span<Place> all_places() const { return {places, place_count}; }
};

/// Records by pair; each keeps its number for good.
class PairTable {
 public:
  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

  PairRecord& operator[](std::uint32_t number) { return records_[number]; }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(records_.size()); }
  std::span<PairRecord> records() { return {records_.data(), records_.size()}; }
  std::size_t memory() const { return records_.capacity() * sizeof(PairRecord) + slots_.size() * sizeof(Slot); }

  /// The record, or nullptr.
  PairRecord* find(std::uint64_t key) {
    const std::size_t i = place(key, hash_pair(key));
    return slots_[i].number > 0 ? &records_[slots_[i].number - 1] : nullptr;
  }
  /// The number of a record that may be new (and then has no count).
  std::uint32_t find_or_add(std::uint64_t key) {
    if ((records_.size() + 1) * 3 > slots_.size() * 2) grow();
    const std::uint64_t hash = hash_pair(key);
    Slot& slot = slots_[place(key, hash)];
    if (slot.number == 0) {
      records_.push_back({key, 0, nullptr, 0});
      slot = {tag_of(hash), size()};
    }
    return slot.number - 1;
  }
  void prefetch(std::uint64_t key) const { __builtin_prefetch(&slots_[hash_pair(key) & (slots_.size() - 1)]); }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t number = 0;  // of the record + 1; 0: free
  };

  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  std::size_t place(std::uint64_t key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash & mask;
    while (slots_[i].number > 0 && !(slots_[i].tag == tag_of(hash) && records_[slots_[i].number - 1].key == key)) {
      i = (i + 1) & mask;
    }
    return i;
  }
  void grow() {
    slots_ = std::vector<Slot>(slots_.size() * 2);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t number = 0; number < size(); ++number) {
      const std::uint64_t hash = hash_pair(records_[number].key);
      std::size_t i = hash & mask;
      while (slots_[i].number > 0) i = (i + 1) & mask;
      slots_[i] = {tag_of(hash), number + 1};
    }
  }

  ResizableArray<PairRecord> records_;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
};

}  // namespace ilme::text::detail
