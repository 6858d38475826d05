/// Byte-pair encoding of one piece of text: exact, never quadratic, with a bounded cache of words.
/// Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; ids as Hugging Face tokenizers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>
#include <string_view>
#include <vector>

#include <ilme/core/error.hpp>
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

  explicit MergeTable(std::size_t expected) : slots_(std::bit_ceil(expected * 2 + 2)) {}

  /// Of two merges of one pair the later counts, as at Hugging Face.
  void insert(const Merge& merge, std::uint32_t rank) {
    const std::uint64_t pair = std::uint64_t{merge.left} << 32 | merge.right;
    slots_[place(pair)] = {pair, rank, merge.result};
  }
  /// The entry of a pair; its rank is kNoRank when the pair does not merge.
  const Entry& find(TokenId left, TokenId right) const { return slots_[place(std::uint64_t{left} << 32 | right)]; }

 private:
  std::size_t place(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash_pair(pair) & mask;
    while (slots_[i].pair != pair && slots_[i].rank != kNoRank) i = (i + 1) & mask;
    return i;
  }

  std::vector<Entry> slots_;
};

/// Encodes pieces with the merges of a model. Immutable; what changes is in a `Scratch`, one for each thread.
class BpeEncoder {
 public:
  /// Words seen lately with their ids, and working memory. Takes about 2 MB whatever the text.
  class Scratch {
    friend class BpeEncoder;
    static constexpr std::size_t kLongestKey = 35, kMostIds = 6, kSlots = std::size_t{1} << 15;
    struct alignas(64) CachedWord {
      std::array<TokenId, kMostIds> ids;
      std::uint32_t hash = 0;
      std::uint8_t size = 0;  // of the key; 0: free
      std::uint8_t count = 0;
      std::array<char, kLongestKey - 1> key;
    };
    std::vector<CachedWord> words = std::vector<CachedWord>(kSlots);
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> ranks, previous, next;
  };

  /// Reads the model, which must outlive the encoder. Throws InputError when a byte has no token.
  explicit BpeEncoder(const TokenizerModel& model) : merges_(model.merges.size()), whole_(0) {
    std::vector<char> added(model.tokens.size(), 0);
    for (const AddedToken& token : model.added_tokens) added[token.id] = 1;
    std::array<bool, 256> found{};
    for (TokenId id = 0; id < model.tokens.size(); ++id) {
      const std::string& bytes = model.tokens[id];
      if (added[id] || bytes.empty()) continue;
      if (bytes.size() == 1) {
        byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
        found[static_cast<unsigned char>(bytes[0])] = true;
      }
      if (model.ignore_merges) whole_.insert(bytes, id);
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      if (!found[byte]) {
        throw InputError("the vocabulary has no token for the byte 0x", "0123456789ABCDEF"[byte >> 4],
                         "0123456789ABCDEF"[byte & 15], ", expected all 256");
      }
    }
    ignore_merges_ = model.ignore_merges;
    for (std::size_t i = 0; i < model.merges.size(); ++i) {
      const Merge& merge = model.merges[i];
      // Text never becomes a control token by merging.
      if (added[merge.result]) continue;
      merges_.insert(merge, model.rank_is_result ? merge.result : static_cast<std::uint32_t>(i));
    }
  }

  /// Appends the ids of one piece.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (piece.size() <= 1) {
      if (!piece.empty()) out.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
      return;
    }
    if (piece.size() >= Scratch::kLongestKey) return encode_uncached(piece, scratch, out);
    const std::uint64_t hash = hash_bytes(piece);
    Scratch::CachedWord& word = scratch.words[hash >> 32 & (Scratch::kSlots - 1)];
    const auto tag = static_cast<std::uint32_t>(hash);
    if (word.hash == tag && word.size == piece.size() &&
        std::memcmp(word.key.data(), piece.data(), piece.size()) == 0) {
      out.insert(out.end(), word.ids.begin(), word.ids.begin() + word.count);
      return;
    }
    const std::size_t before = out.size();
    encode_uncached(piece, scratch, out);
    const std::size_t count = out.size() - before;
    if (count <= Scratch::kMostIds) {
      std::memcpy(word.key.data(), piece.data(), piece.size());
      std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), word.ids.begin());
      word.hash = tag;
      word.size = static_cast<std::uint8_t>(piece.size());
      word.count = static_cast<std::uint8_t>(count);
    }
  }

 private:
  static constexpr std::size_t kShortPiece = 64;

  void encode_uncached(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (ignore_merges_) {
      if (const TokenId* id = whole_.find(piece)) {
        out.push_back(*id);
        return;
      }
    }
    if (piece.size() <= kShortPiece) {
      encode_short(piece, out);
    } else {
      encode_long(piece, scratch, out);
    }
  }

  /// Looks for the best pair by scanning: quadratic in the length, which is small.
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const {
    std::array<TokenId, kShortPiece> ids, results;
    std::array<std::uint32_t, kShortPiece> ranks;  // of the pair that starts at i
    std::size_t count = piece.size();
    for (std::size_t i = 0; i < count; ++i) ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
    const auto look_up = [&](std::size_t i) {
      const MergeTable::Entry& entry = merges_.find(ids[i], ids[i + 1]);
      ranks[i] = entry.rank;
      results[i] = entry.result;
    };
    for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i) {
        if (ranks[i] < ranks[best]) best = i;
      }
      if (ranks[best] == MergeTable::kNoRank) break;
      ids[best] = results[best];
      --count;
      std::copy(&ids[best + 2], &ids[count] + 1, &ids[best + 1]);
      if (best + 1 < count) {
        std::copy(&ranks[best + 2], &ranks[count], &ranks[best + 1]);
        std::copy(&results[best + 2], &results[count], &results[best + 1]);
      }
      if (best > 0) look_up(best - 1);
      if (best + 1 < count) look_up(best);
    }
    out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// A heap of pairs over a linked list: n log n.
  void encode_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();
    if (piece.size() >= kNone) {
      throw InputError("a stretch of ", piece.size(), " bytes without a place to split, expected less than 4 GiB");
    }
    const auto count = static_cast<std::uint32_t>(piece.size());
    auto& [words, ids, ranks, previous, next] = scratch;
    ids.resize(count);
    ranks.assign(count, MergeTable::kNoRank);
    previous.resize(count);
    next.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
      previous[i] = i - 1;  // kNone at 0
      next[i] = i + 1 < count ? i + 1 : kNone;
    }
    // Rank above position, so that ties go to the left; an entry is stale when the rank at its position has changed.
    std::vector<std::uint64_t> entries;
    entries.reserve(count);
    const auto look_up = [&](std::uint32_t i) {
      ranks[i] = merges_.find(ids[i], ids[next[i]]).rank;
      return std::uint64_t{ranks[i]} << 32 | i;
    };
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
      if (const std::uint64_t entry = look_up(i); ranks[i] != MergeTable::kNoRank) entries.push_back(entry);
    }
    std::priority_queue heap(std::greater<>(), std::move(entries));
    while (!heap.empty()) {
      const std::uint64_t top = heap.top();
      heap.pop();
      const auto i = static_cast<std::uint32_t>(top);
      if (ranks[i] != top >> 32) continue;
      const std::uint32_t right = next[i];
      ids[i] = merges_.find(ids[i], ids[right]).result;
      next[i] = next[right];
      ranks[i] = ranks[right] = MergeTable::kNoRank;
      if (next[i] != kNone) {
        previous[next[i]] = i;
        if (const std::uint64_t entry = look_up(i); ranks[i] != MergeTable::kNoRank) heap.push(entry);
      }
      if (const std::uint32_t left = previous[i]; left != kNone) {
        if (const std::uint64_t entry = look_up(left); ranks[left] != MergeTable::kNoRank) heap.push(entry);
      }
    }
    for (std::uint32_t i = 0; i != kNone; i = next[i]) out.push_back(ids[i]);
  }

  std::array<TokenId, 256> byte_ids_{};
  MergeTable merges_;
  TokenIndex whole_;
  bool ignore_merges_ = false;
};

}  // namespace ilme::text
