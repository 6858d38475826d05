/// Words between whitespace, and the word itself without the punctuation around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// A whitespace word inside a text: the bytes [begin, end) hold no `\s` and are as many as they can be. The word itself
/// is [core_begin, core_end): without the characters at both ends that are not `\w` (quotes, commas, full stops), so
/// that "(kitab)," is the word "kitab". It is empty when no letter is in it: a number or a dash is no such word.
struct WordSpan {
  std::size_t begin = 0, end = 0;
  std::size_t core_begin = 0, core_end = 0;

  bool has_core() const noexcept { return core_begin < core_end; }
};

/// Calls `visit(const WordSpan&)` for the whitespace words of `text` in order.
template <class Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  const char *const data = text.data(), *const end = data + text.size();
  WordSpan word;
  bool inside = false, letters = false, started = false;
  const auto finish = [&](std::size_t at) {
    word.end = at;
    if (!letters) word.core_begin = word.core_end = word.begin;
    visit(static_cast<const WordSpan&>(word));
    inside = false;
  };
  for (const char* p = data; p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    const auto at = static_cast<std::size_t>(p - data);
    const CharClass kind = char_classes()[character.code_point];
    if (kind >= CharClass::space) {
      if (inside) finish(at);
    } else {
      if (!inside) {
        word = {at, at, at, at};
        inside = true;
        letters = started = false;
      }
      if (kind == CharClass::letter || is_word_character(character.code_point)) {
        letters = letters || kind == CharClass::letter;
        if (!started) word.core_begin = at;
        started = true;
        word.core_end = at + character.length;
      }
    }
    p += character.length;
  }
  if (inside) finish(text.size());
}

/// Words between whitespace (`\s`).
inline std::uint64_t count_whitespace_words(std::string_view text) {
  std::uint64_t words = 0;
  for_each_word(text, [&](const WordSpan&) { ++words; });
  return words;
}

/// Characters (code points); a byte that belongs to no well-formed one counts as one.
inline std::uint64_t count_characters(std::string_view text) {
  std::uint64_t characters = 0;
  for (const char *p = text.data(), *end = p + text.size(); p < end; ++characters) p += decode_utf8(p, end).length;
  return characters;
}

}  // namespace ilme::text
