/// Finer classes than CharClass, for patterns that tell upper case from lower case and know combining marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// As Hugging Face's regex engine (Unicode 16) has them. Each is one bit, so that sets of them are masks.
enum class CaseClass : std::uint8_t {
  other = 1,      // none of the following, and every ill-formed byte
  mark = 2,       // \p{M}
  upper = 4,      // \p{Lu} and \p{Lt}
  caseless = 8,   // \p{Lm} and \p{Lo}
  lower = 16,     // \p{Ll}
  number = 32,    // \p{N}
  space = 64,     // \s but for the next
  newline = 128,  // \r and \n
};

constexpr CaseClass operator|(CaseClass a, CaseClass b) {
  return static_cast<CaseClass>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// True when `kind` is in the set `classes`.
constexpr bool is_any(CaseClass kind, CaseClass classes) {
  return (static_cast<std::uint8_t>(kind) & static_cast<std::uint8_t>(classes)) != 0;
}

/// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr CaseClass kNotLower = CaseClass::mark | CaseClass::upper | CaseClass::caseless;
/// [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr CaseClass kNotUpper = CaseClass::mark | CaseClass::caseless | CaseClass::lower;
/// [^\s\p{L}\p{N}]
inline constexpr CaseClass kSign = CaseClass::other | CaseClass::mark;

inline const CodePointTable<CaseClass>& case_classes() {
  static const CodePointTable<CaseClass> table = [] {
    CodePointTable<CaseClass> classes(CaseClass::other);
    detail::for_each_category([&](detail::CodePointRange range, detail::Category category) {
      using detail::Category;
      if (category == Category::Lu || category == Category::Lt) classes.fill(range, CaseClass::upper);
      if (category == Category::Ll) classes.fill(range, CaseClass::lower);
      if (category == Category::Lm || category == Category::Lo) classes.fill(range, CaseClass::caseless);
      if (category >= Category::Mn && category <= Category::Me) classes.fill(range, CaseClass::mark);
      if (category >= Category::Nd && category <= Category::No) classes.fill(range, CaseClass::number);
    });
    classes.fill(detail::kSpaceRanges, CaseClass::space);
    classes.fill({'\n', '\n'}, CaseClass::newline);
    classes.fill({'\r', '\r'}, CaseClass::newline);
    return classes;
  }();
  return table;
}

namespace detail {

/// Walks over one text and tells the classes of its characters.
class CaseCursor {
 public:
  struct Character {
    CaseClass kind;
    std::uint32_t length;  // 0 at the end of the text, where `kind` is `newline`: nothing goes on there
  };

  explicit CaseCursor(std::string_view text) : end_(text.data() + text.size()), classes_(case_classes()) {}

  Character at(const char* p) const {
    if (p == end_) return {CaseClass::newline, 0};
    const auto byte = static_cast<std::uint8_t>(*p);
    if (byte < 0x80) return {classes_.low(byte), 1};
    if (byte >= 0xC2 && byte <= 0xDF && end_ - p >= 2) {
      const auto trail = static_cast<std::uint8_t>(p[1]);
      if ((trail & 0xC0U) == 0x80U) return {classes_.low((byte & 0x1FU) << 6 | (trail & 0x3FU)), 2};
    }
    const DecodedCharacter character = decode_utf8(p, end_);
    return {classes_[character.code_point], character.length};
  }
  /// The end of the characters of `classes` from `p` on; `newline` is not among them.
  const char* skip(const char* p, CaseClass classes) const {
    for (Character character = at(p); is_any(character.kind, classes); character = at(p)) p += character.length;
    return p;
  }
  /// The end of at most `limit` digits from `p` on.
  const char* skip_numbers(const char* p, int limit) const {
    for (; limit > 0; --limit) {
      const Character character = at(p);
      if (character.kind != CaseClass::number) break;
      p += character.length;
    }
    return p;
  }

  const char* end() const { return end_; }

 private:
  const char* end_;
  const CodePointTable<CaseClass>& classes_;
};

}  // namespace detail

}  // namespace ilme::text
