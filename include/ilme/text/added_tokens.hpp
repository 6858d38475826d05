/// Finding added tokens in text: the leftmost match, then the longest of those that start there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// Seeks a set of added tokens. Keeps pointers: the tokens must outlive it.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  /// Takes those of `tokens` whose `normalized` flag is `normalized`.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized) {
    for (const AddedToken& token : tokens) {
      if (token.normalized == normalized && !token.content.empty()) {
        by_first_byte_[static_cast<unsigned char>(token.content[0])].push_back(&token);
      }
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      auto& candidates = by_first_byte_[byte];
      if (candidates.empty()) continue;
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const AddedToken* a, const AddedToken* b) { return a->content.size() > b->content.size(); });
      first_bytes_ += static_cast<char>(byte);
    }
  }

  bool empty() const noexcept { return first_bytes_.empty(); }

  /// Calls `on_text(string_view)` for the stretches between tokens (never empty) and `on_token(const AddedToken&)` for
  /// the tokens, in order. With `special_as_text` a special token that is found stays part of the stretch around it.
  template <class OnText, class OnToken>
  void split(std::string_view text, bool special_as_text, OnText&& on_text, OnToken&& on_token) const {
    std::size_t emitted = 0;
    for (std::size_t i = next_candidate(text, 0); i < text.size(); i = next_candidate(text, i)) {
      const AddedToken* token = match(text.substr(i));
      if (token == nullptr) {
        ++i;
        continue;
      }
      if (!(special_as_text && token->special)) {
        if (i > emitted) on_text(text.substr(emitted, i - emitted));
        on_token(*token);
        emitted = i + token->content.size();
      }
      i += token->content.size();
    }
    if (emitted < text.size()) on_text(text.substr(emitted));
  }

 private:
  std::size_t next_candidate(std::string_view text, std::size_t from) const {
    if (from >= text.size() || first_bytes_.empty()) return text.size();
    if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
    while (from < text.size() && by_first_byte_[static_cast<unsigned char>(text[from])].empty()) ++from;
    return from;
  }
  const AddedToken* match(std::string_view text) const {
    for (const AddedToken* token : by_first_byte_[static_cast<unsigned char>(text[0])]) {
      if (text.starts_with(token->content)) return token;
    }
    return nullptr;
  }

  std::array<std::vector<const AddedToken*>, 256> by_first_byte_;
  std::string first_bytes_;
};

}  // namespace ilme::text
