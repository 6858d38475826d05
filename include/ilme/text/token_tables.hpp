/// Tables of a vocabulary: ids by bytes, merges by pairs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <ilme/core/huge_pages.hpp>
#include <ilme/text/hash.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// Ids by the bytes of tokens. Keeps views: the tokens must outlive it.
class TokenIndex {
 public:
  explicit TokenIndex(std::size_t expected = 0) : slots_(std::bit_ceil(expected * 2 + 16)) {}

  /// Adds a token; the first of two with equal bytes stays, and the answer is false for the second.
  bool insert(std::string_view bytes, TokenId id) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(bytes)];
    if (slot.bytes.data() != nullptr) return false;
    slot = {bytes, id};
    ++count_;
    return true;
  }
  /// The id, or nullptr.
  const TokenId* find(std::string_view bytes) const {
    const Slot& slot = slots_[place(bytes)];
    return slot.bytes.data() != nullptr ? &slot.id : nullptr;
  }

 private:
  struct Slot {
    std::string_view bytes;  // null data: free
    TokenId id = 0;
  };

  std::size_t place(std::string_view bytes) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash_bytes(bytes) & mask;
    while (slots_[i].bytes.data() != nullptr && slots_[i].bytes != bytes) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.bytes.data() != nullptr) slots_[place(slot.bytes)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

/// Rank and result by pair of ids.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  struct Entry {
    std::uint64_t pair = std::numeric_limits<std::uint64_t>::max();
    std::uint32_t rank = kNoRank;
    TokenId result = 0;
  };

  explicit MergeTable(std::size_t expected)
      : slots_(std::bit_ceil(expected * 2 + 2)), seen_(std::bit_ceil(expected / 8 + 1)) {}

  /// Of two merges of one pair the later counts, as at Hugging Face.
  void insert(const Merge& merge, std::uint32_t rank) {
    const std::uint64_t pair = std::uint64_t{merge.left} << 32 | merge.right;
    const std::uint64_t hash = hash_pair(pair);
    slots_[place(pair, hash)] = {pair, rank, merge.result};
    seen_[word_of(hash)] |= bit_of(hash);
  }
  /// The entry of a pair; its rank is kNoRank when the pair does not merge.
  const Entry& find(TokenId left, TokenId right) const {
    const std::uint64_t pair = std::uint64_t{left} << 32 | right;
    return slots_[place(pair, hash_pair(pair))];
  }
  /// The rank of a pair, kNoRank when it does not merge: faster than `find` where most do not.
  std::uint32_t rank(TokenId left, TokenId right) const {
    const std::uint64_t pair = std::uint64_t{left} << 32 | right, hash = hash_pair(pair);
    return (seen_[word_of(hash)] & bit_of(hash)) != 0 ? slots_[place(pair, hash)].rank : kNoRank;
  }

 private:
  std::size_t place(std::uint64_t pair, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash & mask;
    while (slots_[i].pair != pair && slots_[i].rank != kNoRank) i = (i + 1) & mask;
    return i;
  }
  std::size_t word_of(std::uint64_t hash) const { return hash >> 32 & (seen_.size() - 1); }
  static std::uint64_t bit_of(std::uint64_t hash) { return std::uint64_t{1} << (hash >> 58); }

  std::vector<Entry, HugePageAllocator<Entry>> slots_;
  std::vector<std::uint64_t> seen_;  // a bit for each pair, often shared with others
};

}  // namespace ilme::text
