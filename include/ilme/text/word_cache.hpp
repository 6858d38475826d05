/// A bounded cache of the ids of words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/huge_pages.hpp>
#include <ilme/text/hash.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// Words met lately with their ids, by their bytes. Never grows beyond its limit: when it is full, the words that were
/// met only once since the last time are forgotten.
/// `Words` 64-bit words hold the bytes of the longest word; `FewIds` ids lie in its entry, more of them elsewhere.
template <std::size_t Words, std::size_t FewIds>
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = Words * 8, kFewIds = FewIds;
  /// A word's bytes, padded with zeros.
  using Key = std::array<std::uint64_t, Words>;
  struct Entry {
    Key key{};
    std::array<std::uint8_t, FewIds * 3> ids{};  // three bytes each; or where many of them lie
    std::uint8_t size = 0;                       // of the word
    std::uint8_t count = 0;                      // of ids; 0: free
    bool met_again = false;

    bool is(const Key& other, std::size_t other_size) const {
      std::uint64_t differences = size ^ other_size;
      for (std::size_t i = 0; i < Words; ++i) differences |= key[i] ^ other[i];
      return differences == 0;
    }
  };

  /// `limit`: bytes of memory; a table of 1,024 words is always kept.
  explicit WordCache(std::size_t limit)
      : most_slots_(std::bit_floor(std::max(limit / 4 * 3 / sizeof(Entry), kFewestSlots))),
        most_elsewhere_(limit / 4 / sizeof(TokenId)),
        slots_(kFewestSlots),
        elsewhere_(kLongestWord) {}

  /// The key of a word of at most kLongestWord bytes; the bytes up to `end` can be read.
  static Key key_of(std::string_view word, const char* end) {
    static constexpr auto kMasks = [] {
      std::array<std::uint8_t, 2 * sizeof(Key)> bytes{};
      std::fill_n(bytes.begin(), sizeof(Key), std::uint8_t{0xFF});
      return bytes;
    }();
    if (end - word.data() < static_cast<std::ptrdiff_t>(sizeof(Key))) [[unlikely]] {
      Key key{};
      std::memcpy(key.data(), word.data(), word.size());
      return key;
    }
    Key key;
    const auto* const masks = reinterpret_cast<const char*>(kMasks.data()) + (sizeof(Key) - word.size());
    for (std::size_t i = 0; i < Words; ++i) {
      key[i] = detail::load_word<std::uint64_t>(word.data() + 8 * i) & detail::load_word<std::uint64_t>(masks + 8 * i);
    }
    return key;
  }
  static std::uint64_t hash(const Key& key) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < Words; i += 2) {
      hash ^= detail::fold_product(key[i] ^ (0xA0761D6478BD642FULL + i), key[i + 1] ^ (0xE7037ED1A0B428DBULL - i));
    }
    return hash;
  }
  /// Makes the table as large as a text of `bytes` is likely to need, once instead of step by step.
  void expect(std::size_t bytes) {
    const std::size_t wanted = std::min(std::bit_floor(bytes / 64 + 1), most_slots_);
    if (wanted > slots_.size()) resize(wanted, [](const Entry&) { return true; });
  }
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }

  /// Writes the ids of a word and garbage up to kLongestWord behind them to `out` and tells their number; 0 when the
  /// word is not here.
  std::size_t find(const Key& key, std::size_t size, std::uint64_t hash, TokenId* out) {
    Entry& entry = slots_[place(key, size, hash)];
    if (!entry.met_again) entry.met_again = true;  // writing it each time would cost memory bandwidth
    if (entry.count <= FewIds) [[likely]] {
      static_assert(std::endian::native == std::endian::little && FewIds % 2 == 0);
      constexpr std::uint64_t kId = 0xFFFFFF;
      const char* p = reinterpret_cast<const char*>(&entry) + offsetof(Entry, ids);
      for (std::size_t i = 0; i < FewIds; i += 2, p += 6) {
        // Two bytes of a load belong to the next pair or, at the end, to what follows.
        const auto pair = detail::load_word<std::uint64_t>(p);
        const std::uint64_t apart = (pair & kId) | (pair << 8 & kId << 32);
        std::memcpy(out + i, &apart, sizeof apart);
      }
    } else {
      std::memcpy(out, &elsewhere_[detail::load_word<std::uint32_t>(reinterpret_cast<const char*>(entry.ids.data()))],
                  kLongestWord * sizeof(TokenId));
    }
    return entry.count;
  }
  /// Adds a word that is not here.
  void insert(const Key& key, std::size_t size, std::uint64_t hash, std::span<const TokenId> ids) {
    if (used_ * 2 >= slots_.size() || elsewhere_.size() + ids.size() > most_elsewhere_) make_room();
    Entry& entry = slots_[place(key, size, hash)];
    entry = {key, {}, static_cast<std::uint8_t>(size), static_cast<std::uint8_t>(ids.size()), false};
    put_ids(entry, ids);
    ++used_;
  }

 private:
  static constexpr std::size_t kFewestSlots = 1024;

  std::size_t place(const Key& key, std::size_t size, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash & mask;
    while (slots_[i].count != 0 && !slots_[i].is(key, size)) i = (i + 1) & mask;
    return i;
  }
  void put_ids(Entry& entry, std::span<const TokenId> ids) {
    if (ids.size() <= FewIds) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t j = 0; j < 3; ++j) entry.ids[3 * i + j] = static_cast<std::uint8_t>(ids[i] >> (8 * j));
      }
      return;
    }
    const auto start = static_cast<std::uint32_t>(elsewhere_.size() - kLongestWord);  // before the padding
    std::memcpy(entry.ids.data(), &start, sizeof start);
    elsewhere_.resize(elsewhere_.size() + ids.size());
    std::copy(ids.begin(), ids.end(), elsewhere_.begin() + start);
  }
  void make_room() {
    if (slots_.size() < most_slots_ && used_ * 2 >= slots_.size()) {
      return resize(std::min(slots_.size() * 4, most_slots_), [](const Entry&) { return true; });
    }
    const auto met_again = [](const Entry& entry) { return entry.met_again; };
    const auto many =
        static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), met_again)) * 4 > slots_.size();
    resize(slots_.size(), [&](const Entry& entry) { return entry.met_again && !many; });
  }
  /// Moves the words that `keep` names to a new table.
  template <class Keep>
  void resize(std::size_t size, Keep&& keep) {
    const Table old = std::exchange(slots_, Table(size));
    const std::vector<TokenId> old_ids = std::exchange(elsewhere_, std::vector<TokenId>(kLongestWord));
    used_ = 0;
    for (const Entry& entry : old) {
      if (entry.count == 0 || !keep(entry)) continue;
      Entry& moved = slots_[place(entry.key, entry.size, hash(entry.key))];
      moved = entry;
      moved.met_again = false;
      if (entry.count > FewIds) {
        put_ids(moved, {&old_ids[detail::load_word<std::uint32_t>(reinterpret_cast<const char*>(entry.ids.data()))],
                        entry.count});
      }
      ++used_;
    }
  }

  using Table = std::vector<Entry, HugePageAllocator<Entry>>;
  std::size_t most_slots_, most_elsewhere_, used_ = 0;
  Table slots_;
  std::vector<TokenId> elsewhere_;  // ids of the words that have many; as many as a word can have are padding
};

}  // namespace ilme::text
