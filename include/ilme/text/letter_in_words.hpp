/// Replacing a letter only in words that show which language they are of: as a regular expression for tokenizer.json,
/// and by hand, many times faster.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <ilme/text/unicode.hpp>

namespace ilme::text::detail {

/// Words are runs of letters (\p{L}).
struct LetterInWords {
  std::string_view letter, content;
  std::string_view lookahead;  // true at the start of a word that holds a letter for which `holds` is true
  bool (*holds)(char32_t);

  /// Each match but a word's first goes on (\G) where the one before it ended. A word is read once from left to right,
  /// so that long runs of letters take linear time; Oniguruma and PCRE2 read it alike.
  std::string pattern() const {
    const std::string l(letter);
    return "(?:(?<!\\p{L})" + std::string(lookahead) + "|\\G(?<=" + l + "))[^\\P{L}" + l + "]*+\\K" + l;
  }

  /// Calls `on_match(begin, end)` for the matches of `pattern` in `text`.
  template <class OnMatch>
  void each_match(std::string_view text, OnMatch&& on_match) const {
    const CharClassTable& classes = char_classes();
    const auto character_at = [&](std::size_t i) { return decode_utf8(text.data() + i, text.data() + text.size()); };
    std::size_t done = 0;
    for (std::size_t at = text.find(letter); at != std::string_view::npos; at = text.find(letter, done)) {
      std::size_t begin = at;
      while (begin > done) {
        const DecodedCharacter before = last_character(text.substr(done, begin - done));
        if (classes[before.code_point] != CharClass::letter) break;
        begin -= before.length;
      }
      bool is_meant = false;
      for (done = begin; done < text.size();) {
        const DecodedCharacter character = character_at(done);
        if (classes[character.code_point] != CharClass::letter) break;
        is_meant = is_meant || holds(character.code_point);
        done += character.length;
      }
      for (; is_meant && at < done; at = text.find(letter, at + letter.size())) on_match(at, at + letter.size());
    }
  }
};

/// Cyrillic schwa in words with a Latin letter: behind letters of other scripts only such a one follows.
inline constexpr std::string_view kHasLatin = "(?=[^\\P{L}\\p{Latin}]*+\\p{L})";
/// Romanian s with a comma in words with letters of Azerbaijani. The capital of ı tells nothing: it is everybody's I.
inline constexpr std::string_view kHasAzerbaijani = "(?=[^\\P{L}əƏğĞı]*+\\p{L})";

inline bool is_azerbaijani_only(char32_t c) {
  return c == 0x259 || c == 0x18F || c == 0x11F || c == 0x11E || c == 0x131;
}

inline constexpr std::array<LetterInWords, 2> kCyrillicSchwas = {
    LetterInWords{"\u04D9", "\u0259", kHasLatin, &is_latin}, LetterInWords{"\u04D8", "\u018F", kHasLatin, &is_latin}};
inline constexpr std::array<LetterInWords, 2> kRomanianLetters = {
    LetterInWords{"\u0219", "\u015F", kHasAzerbaijani, &is_azerbaijani_only},
    LetterInWords{"\u0218", "\u015E", kHasAzerbaijani, &is_azerbaijani_only}};

/// The rule that `pattern` writes down, or null.
inline const LetterInWords* find_letter_in_words(std::string_view pattern) {
  for (const auto* rules : {&kCyrillicSchwas, &kRomanianLetters}) {
    for (const LetterInWords& rule : *rules) {
      if (rule.pattern() == pattern) return &rule;
    }
  }
  return nullptr;
}

}  // namespace ilme::text::detail
