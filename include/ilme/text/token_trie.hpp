/// The longest token that a text starts with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// A set of tokens as a double-array trie (Aoe 1989, "An Efficient Digital Search Algorithm by Using a Double-Array
/// Structure") with four bytes a node, so that most of it stays in the processor's caches.
class TokenTrie {
 public:
  static constexpr TokenId kNone = std::numeric_limits<TokenId>::max();
  using Token = std::pair<std::string_view, TokenId>;

  TokenTrie() = default;
  /// `tokens`: each string once, none empty. When they are too many for the nodes (over two million), `complete()` is
  /// false and the trie is of no use.
  explicit TokenTrie(std::vector<Token> tokens) {
    std::sort(tokens.begin(), tokens.end());
    TokenId largest = 0;
    for (const auto& [bytes, id] : tokens) largest = std::max(largest, id);
    shorter_.assign(std::size_t{largest} + 1, kNone);
    reach(kLabels);
    nodes_[0] = kTaken;
    // Nodes to give children to, breadth first, so that the top of the trie lies together.
    struct Open {
      std::uint32_t node;
      TokenId last;  // the longest token on the way to the node
      std::size_t depth, begin, end;
    };
    std::vector<Open> open{{0, kNone, 0, 0, tokens.size()}};
    std::vector<std::size_t> bounds;
    std::vector<std::uint8_t> labels;
    for (std::size_t next = 0; next < open.size(); ++next) {
      auto [node, last, depth, begin, end] = open[next];
      if (begin < end && tokens[begin].first.size() == depth) {
        shorter_[tokens[begin].second] = last;
        last = tokens_[node] = tokens[begin].second;
        nodes_[node] |= kIsToken;
        ++begin;
      }
      if (begin == end) continue;
      bounds.clear();
      labels.clear();
      for (std::size_t i = begin; i < end; ++i) {
        const auto label = static_cast<std::uint8_t>(tokens[i].first[depth]);
        if (!labels.empty() && labels.back() == label) continue;
        labels.push_back(label);
        bounds.push_back(i);
      }
      bounds.push_back(end);
      const std::size_t base = place(labels);
      if (base + kLabels > kMostNodes) return;
      nodes_[node] |= static_cast<std::uint32_t>(base) << kBaseShift;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const std::size_t child = base + labels[i];
        nodes_[child] = labels[i] + 1U;
        open.push_back({static_cast<std::uint32_t>(child), last, depth + 1, bounds[i], bounds[i + 1]});
      }
    }
    base_taken_ = {};
    complete_ = true;
  }

  bool complete() const noexcept { return complete_; }

  struct Found {
    TokenId token;
    std::uint32_t length;
  };
  /// The longest token that [p, end) starts with; its length is 0 when there is none.
  Found longest(const char* p, const char* end) const {
    std::uint32_t node = nodes_[0], length = 0, found = 0;
    for (const char* const begin = p; p < end; ++p) {
      const std::uint32_t byte = static_cast<std::uint8_t>(*p), child = (node >> kBaseShift) + byte;
      node = nodes_[child];
      if ((node & kLabelMask) != byte + 1) break;
      if ((node & kIsToken) != 0) {
        found = child;
        length = static_cast<std::uint32_t>(p - begin) + 1;
      }
    }
    return {tokens_[found], length};
  }
  /// The longest token that is a shorter beginning of `token`, which is one of the set; kNone when there is none.
  TokenId shorter(TokenId token) const { return shorter_[token]; }

 private:
  // A node: the place of its children (that of byte c is the base + c), whether it is a token, and the byte that leads
  // to it, plus one. No two nodes have one base, so that the byte alone tells whose child stands at a place; leaves
  // have base 0, which no other node has.
  static constexpr std::uint32_t kLabelMask = 511, kIsToken = 512, kBaseShift = 10, kTaken = kLabelMask;
  static constexpr std::size_t kLabels = 256, kMostNodes = std::size_t{1} << (32 - kBaseShift);

  void reach(std::size_t size) {
    if (size <= nodes_.size()) return;
    nodes_.resize(size);
    tokens_.resize(size, kNone);
    base_taken_.resize(size);
  }
  /// A base that no node has and at which the places of all labels are free.
  std::size_t place(std::span<const std::uint8_t> labels) {
    while (first_free_ < nodes_.size() && nodes_[first_free_] != 0) ++first_free_;
    // Crowded stretches are passed by: a few places stay empty, and building stays linear.
    const std::size_t start = labels.size() > 1 ? std::max(first_free_, crowded_until_) : first_free_;
    std::size_t base = std::max(start, labels[0] + std::size_t{1}) - labels[0];
    for (std::size_t tries = 0;; ++base, ++tries) {
      reach(base + 2 * kLabels);
      const bool fits = !base_taken_[base] && std::all_of(labels.begin(), labels.end(), [&](std::uint8_t label) {
        return nodes_[base + label] == 0;
      });
      if (!fits) continue;
      if (tries > 64) (labels.size() > 1 ? crowded_until_ : first_free_) = base + labels[0];
      base_taken_[base] = true;
      return base;
    }
  }

  std::vector<std::uint32_t> nodes_;
  std::vector<TokenId> tokens_;   // by node
  std::vector<TokenId> shorter_;  // by token
  std::vector<bool> base_taken_;
  std::size_t first_free_ = 0, crowded_until_ = 0;
  bool complete_ = false;
};

}  // namespace ilme::text
