/// Byte-pair encoding of one piece of text: exact, never quadratic, with a bounded cache of words.
/// Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; ids as Hugging Face tokenizers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/token_tables.hpp>
#include <ilme/text/token_trie.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/word_cache.hpp>

namespace ilme::text {

/// Encodes pieces with the merges of a model. Immutable; what changes is in a `Scratch`, one for each thread.
class BpeEncoder {
 public:
  /// Words met lately and working memory.
  class Scratch {
   public:
    /// Bytes that the cache of words may take; a word takes 32 to 128.
    static constexpr std::size_t kDefaultCacheBytes = std::size_t{32} << 20;
    explicit Scratch(std::size_t cache_bytes = kDefaultCacheBytes)
        : short_words(cache_bytes / 4 * 3), long_words(cache_bytes / 4) {}

   private:
    friend class BpeEncoder;
    WordCache<2, 4> short_words;
    WordCache<4, 6> long_words;
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> ranks, previous, next;
  };

  /// Reads the model, which must outlive the encoder. A byte without a token is left out before anything merges, as
  /// Hugging Face does (SmolLM2 has no token for some control characters).
  explicit BpeEncoder(const TokenizerModel& model) : merges_(model.merges.size()), whole_(0) {
    std::vector<char> added(model.tokens.size(), 0);
    for (const AddedToken& token : model.added_tokens) added[token.id] = 1;
    byte_ids_.fill(kNoToken);
    for (TokenId id = 0; id < model.tokens.size(); ++id) {
      const std::string& bytes = model.tokens[id];
      if (added[id] || bytes.empty()) continue;
      if (bytes.size() == 1) byte_ids_[static_cast<unsigned char>(bytes[0])] = id;
    }
    lacks_bytes_ = std::count(byte_ids_.begin(), byte_ids_.end(), kNoToken) > 0;
    for (std::size_t i = 0; i < model.merges.size(); ++i) {
      const Merge& merge = model.merges[i];
      // Text never becomes a control token by merging.
      if (added[merge.result]) continue;
      merges_.insert(merge, static_cast<std::uint32_t>(model.rank_is_result ? merge.result : i));
    }
    goes_by_tokens_ = find_origins(model, added);
    for (TokenId id = 0; id < model.tokens.size(); ++id) {
      if (model.ignore_merges && !added[id] && !model.tokens[id].empty() && !(goes_by_tokens_ && reachable(id))) {
        whole_.insert(model.tokens[id], id);
      }
    }
  }

  /// Appends the ids of one piece.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    Batch batch(*this, scratch, out, piece);
    batch.push(piece);
  }

  /// Encodes the pieces of a text in order, several at a time, so that looking up one word does not wait for the
  /// memory of another.
  class Batch {
   public:
    /// Appends to `out`. The pieces that are pushed lie in `text`, which stays as it is until the end.
    Batch(const BpeEncoder& encoder, Scratch& scratch, std::vector<TokenId>& out, std::string_view text)
        : encoder_(encoder), scratch_(scratch), out_(out), end_(text.data() + text.size()) {
      scratch_.short_words.expect(text.size());
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() { flush(); }

    void push(std::string_view piece) {
      if (piece.empty()) return;
      Item& item = items_[count_];
      item.piece = piece;
      if (piece.size() <= ShortWords::kLongestWord) [[likely]] {
        item.key = ShortWords::key_of(piece, end_);
        item.hash = ShortWords::hash(item.key);
        scratch_.short_words.prefetch(item.hash);
      }
      if (++count_ == kItems) flush();
    }

    /// Encodes what was pushed.
    void flush() {
      for (std::size_t i = 0; i < count_; ++i) {
        const Item& item = items_[i];
        if (item.piece.size() > ShortWords::kLongestWord) [[unlikely]] {
          encode_long(item.piece);
          continue;
        }
        const std::size_t count = scratch_.short_words.find(item.key, item.piece.size(), item.hash, ids_ + ids_count_);
        ids_count_ += count;
        if (count == 0) [[unlikely]] {
          const std::span<const TokenId> ids = encode_new(item.piece);
          if (!ids.empty()) scratch_.short_words.insert(item.key, item.piece.size(), item.hash, ids);
        }
      }
      append_ids();
      count_ = 0;
    }

   private:
    using ShortWords = decltype(Scratch::short_words);
    using LongWords = decltype(Scratch::long_words);
    static constexpr std::size_t kItems = 64;
    struct Item {
      std::string_view piece;
      std::uint64_t hash;
      ShortWords::Key key;
    };

    void append_ids() {
      out_.insert(out_.end(), ids_, ids_ + ids_count_);
      ids_count_ = 0;
    }
    /// Appends the ids of a piece that no cache knows.
    std::span<const TokenId> encode_new(std::string_view piece) {
      append_ids();
      const std::size_t before = out_.size();
      encoder_.encode_uncached(piece, scratch_, out_);
      return std::span(out_).subspan(before);
    }
    void encode_long(std::string_view piece) {
      if (piece.size() > LongWords::kLongestWord) {
        encode_new(piece);
        return;
      }
      append_ids();
      const auto key = LongWords::key_of(piece, end_);
      const std::uint64_t hash = LongWords::hash(key);
      ids_count_ = scratch_.long_words.find(key, piece.size(), hash, ids_);
      if (ids_count_ == 0) {
        const std::span<const TokenId> ids = encode_new(piece);
        if (!ids.empty()) scratch_.long_words.insert(key, piece.size(), hash, ids);
      }
      append_ids();
    }

    const BpeEncoder& encoder_;
    Scratch& scratch_;
    std::vector<TokenId>& out_;
    const char* end_;
    std::size_t count_ = 0, ids_count_ = 0;
    Item items_[kItems];
    TokenId ids_[kItems * ShortWords::kLongestWord];
  };

 private:
  static constexpr std::size_t kShortPiece = 63;
  static constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

  /// How a token comes about when its bytes are encoded by themselves.
  struct Origin {
    std::uint32_t made = kUnreachable;  // the rank of the last merge, plus one; 0 for a byte
    TokenId left = 0, right = 0;        // what it merges
  };
  static constexpr std::uint32_t kUnreachable = MergeTable::kNoRank;  // the bytes become several other tokens

  bool reachable(TokenId token) const { return origins_[token].made != kUnreachable; }

  /// Finds out which tokens their own bytes become, and by which last merge. Tells whether `encode_short` can work: not
  /// with a token whose parts are made by later merges than itself, which trained merges never have.
  bool find_origins(const TokenizerModel& model, const std::vector<char>& added) {
    origins_.resize(model.tokens.size());
    lengths_.resize(model.tokens.size());
    for (const TokenId id : byte_ids_) {
      if (id == kNoToken) continue;
      origins_[id].made = 0;
      lengths_[id] = 1;
    }
    std::vector<Merge> merges = model.merges;
    if (model.rank_is_result) {
      std::stable_sort(merges.begin(), merges.end(),
                       [](const Merge& a, const Merge& b) { return a.result < b.result; });
    }
    const auto comes_about = [&](const Merge& merge, std::uint32_t rank) {
      const auto& [left, right, result] = merge;
      return !added[result] && !reachable(result) && reachable(left) && reachable(right) &&
             never_merge_across(left, right, rank);
    };
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right, result] = merges[i];
      const std::uint32_t rank = merges_.rank(left, right);
      if (rank != (model.rank_is_result ? result : i) || !comes_about(merges[i], rank)) continue;
      const std::string &bytes = model.tokens[result], &head = model.tokens[left];
      if (!bytes.starts_with(head) || bytes.substr(head.size()) != model.tokens[right]) return false;
      origins_[result] = {rank + 1, left, right};
      lengths_[result] = static_cast<std::uint8_t>(std::min<std::size_t>(bytes.size(), kShortPiece + 1));
    }
    if (std::any_of(merges.begin(), merges.end(),
                    [&](const Merge& merge) { return comes_about(merge, merges_.rank(merge.left, merge.right)); })) {
      return false;
    }
    std::vector<TokenTrie::Token> tokens;
    for (TokenId id = 0; id < origins_.size(); ++id) {
      if (reachable(id)) tokens.emplace_back(model.tokens[id], id);
    }
    trie_ = TokenTrie(std::move(tokens));
    return trie_.complete();
  }

  /// True when no merge joins bytes of `left` with bytes of `right` while the bytes of both become these two tokens, up
  /// to the merge with the rank `joined` that joins the two themselves (kNoRank: that merge too).
  /// Goes back through the merges from the last to the first. The tokens at the border at some time merge if their rank
  /// is below that of the merge that takes one of them away, or equal to it and further left.
  bool never_merge_across(TokenId left, TokenId right, std::uint32_t joined = MergeTable::kNoRank) const {
    std::uint32_t limit = MergeTable::kNoRank;
    bool tests = joined == MergeTable::kNoRank;
    for (;; tests = true) {
      if (tests && merges_.rank(left, right) < limit) return false;
      const Origin &a = origins_[left], &b = origins_[right];
      if (a.made > b.made) {
        limit = a.made - 1;  // the merge that ends in `left` lies further left
        left = a.right;
      } else if (b.made > 0) {
        limit = b.made;
        right = b.left;
      } else {
        return true;
      }
    }
  }

  void encode_uncached(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (const TokenId* id = whole_.find(piece)) {
      out.push_back(*id);
      return;
    }
    const auto unknown = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] == kNoToken; };
    if (lacks_bytes_ && std::any_of(piece.begin(), piece.end(), unknown)) [[unlikely]] {
      std::string known(piece);
      std::erase_if(known, unknown);
      if (!known.empty()) merge(known, scratch, out);
      return;
    }
    merge(piece, scratch, out);
  }

  void merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (piece.size() == 1) {
      out.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    } else if (goes_by_tokens_ && piece.size() <= kShortPiece) {
      encode_short(piece, out);
    } else {
      encode_long(piece, scratch, out);
    }
  }

  /// Goes from token to token. Tokens are what merging gives exactly when each is reachable and no two neighbours merge
  /// across their border, and there is one such way only; so the longest tokens are tried first, and an end that leads
  /// nowhere is never tried again (method: github.com/github/rust-gems, crate bpe).
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const {
    const char *const begin = piece.data(), *const end = begin + piece.size();
    const std::size_t first = out.size();
    std::uint64_t open = ~std::uint64_t{0};  // bit i: a token may end at byte i
    std::size_t position = 0;
    auto [token, length] = trie_.longest(begin, end);
    for (;;) {
      const std::size_t next = position + length;
      if ((open >> next & 1) != 0 && (out.size() == first || never_merge_across(out.back(), token))) {
        out.push_back(token);
        if (next == piece.size()) return;
        position = next;
        const TokenTrie::Found found = trie_.longest(begin + position, end);
        token = found.token;
        length = found.length;
        continue;
      }
      if (const TokenId shorter = trie_.shorter(token); shorter != TokenTrie::kNone) {
        token = shorter;
      } else {
        open &= ~(std::uint64_t{1} << position);
        token = out.back();
        out.pop_back();
        position -= lengths_[token];
      }
      length = lengths_[token];
    }
  }

  /// A heap of pairs over a linked list: n log n.
  void encode_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();
    if (piece.size() >= kNone) {
      throw InputError("a stretch of ", piece.size(), " bytes without a place to split, expected less than 4 GiB");
    }
    const auto count = static_cast<std::uint32_t>(piece.size());
    std::vector<TokenId>& ids = scratch.ids;
    std::vector<std::uint32_t>&ranks = scratch.ranks, &previous = scratch.previous, &next = scratch.next;
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

  std::array<TokenId, 256> byte_ids_;  // kNoToken: left out
  bool lacks_bytes_ = false;
  MergeTable merges_;
  TokenIndex whole_;                   // with ignore_merges: tokens that are not reachable
  std::vector<Origin> origins_;        // by token
  std::vector<std::uint8_t> lengths_;  // by token, in bytes; what is longer than a short piece counts as one byte more
  bool goes_by_tokens_ = false;
  TokenTrie trie_;  // of what is reachable
};

}  // namespace ilme::text
