/// Finding added tokens in text: the leftmost match, then the longest of those that start there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// Seeks a set of added tokens. Keeps pointers: the tokens must outlive it.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  /// Takes those of `tokens` whose `normalized` flag is `normalized`; what is sought is what `normalizer` makes of
  /// them.
  AddedTokenMatcher(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& normalizer = {}) {
    for (const AddedToken& token : tokens) {
      if (token.normalized != normalized) continue;
      std::string pattern = normalizer.normalize(token.content);
      if (pattern.empty()) continue;
      auto& candidates = by_first_byte_[static_cast<unsigned char>(pattern[0])];
      candidates.push_back({std::move(pattern), &token});
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      auto& candidates = by_first_byte_[byte];
      if (candidates.empty()) continue;
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.pattern.size() > b.pattern.size(); });
      first_bytes_ += static_cast<char>(byte);
    }
  }

  bool empty() const noexcept { return first_bytes_.empty(); }

  /// Calls `on_text(string_view)` for the stretches between tokens (never empty) and `on_token(const AddedToken&,
  /// string_view)` for the tokens and what they take of the text, in order. With `special_as_text` a special token that
  /// is found stays part of the stretch around it.
  template <class OnText, class OnToken>
  void split(std::string_view text, bool special_as_text, OnText&& on_text, OnToken&& on_token) const {
    std::size_t emitted = 0;
    for (std::size_t i = next_candidate(text, 0); i < text.size(); i = next_candidate(text, i)) {
      const Candidate* found = match(text.substr(i));
      if (found == nullptr) {
        ++i;
        continue;
      }
      const AddedToken* token = found->token;
      std::size_t begin = i, end = i + found->pattern.size();
      if (!(special_as_text && token->special) && !(token->single_word && touches_word(text, begin, end))) {
        if (token->lstrip) {
          begin = std::max(begin, emitted);  // a token with rstrip may have taken the place
          while (begin > emitted &&
                 char_classes()[last_character(text.substr(0, begin)).code_point] >= CharClass::space) {
            begin -= last_character(text.substr(0, begin)).length;
          }
        }
        while (token->rstrip && end < text.size()) {
          const DecodedCharacter next = decode_utf8(text.data() + end, text.data() + text.size());
          if (char_classes()[next.code_point] < CharClass::space) break;
          end += next.length;
        }
        if (begin > emitted) on_text(text.substr(emitted, begin - emitted));
        if (begin < end) on_token(*token, text.substr(begin, end - begin));
        emitted = end;
      }
      i += found->pattern.size();
    }
    if (emitted < text.size()) on_text(text.substr(emitted));
  }

 private:
  struct Candidate {
    std::string pattern;
    const AddedToken* token;
  };

  static bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
    if (begin > 0 && is_word_character(last_character(text.substr(0, begin)).code_point)) return true;
    return end < text.size() && is_word_character(decode_utf8(text.data() + end, text.data() + text.size()).code_point);
  }
  std::size_t next_candidate(std::string_view text, std::size_t from) const {
    if (from >= text.size() || first_bytes_.empty()) return text.size();
    if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
    while (from < text.size() && by_first_byte_[static_cast<unsigned char>(text[from])].empty()) ++from;
    return from;
  }
  const Candidate* match(std::string_view text) const {
    for (const Candidate& candidate : by_first_byte_[static_cast<unsigned char>(text[0])]) {
      if (text.starts_with(candidate.pattern)) return &candidate;
    }
    return nullptr;
  }

  std::array<std::vector<Candidate>, 256> by_first_byte_;
  std::string first_bytes_;
};

}  // namespace ilme::text
