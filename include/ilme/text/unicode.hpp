/// UTF-8 decoding that never fails, and the character classes that pre-tokenisers ask for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include <ilme/text/category_tables.hpp>
#include <ilme/text/unicode_tables.hpp>

namespace ilme::text {

/// What `decode_utf8` gives for a byte that starts no well-formed character: no code point has this value.
inline constexpr char32_t kInvalidCodePoint = 0x110000;

struct DecodedCharacter {
  char32_t code_point;   // kInvalidCodePoint when the bytes are ill-formed
  std::uint32_t length;  // bytes taken: 1 for an ill-formed one, so that every byte belongs to exactly one unit
};

/// The character at `p` (`p < end`), by table 3-7 of the Unicode standard: overlong forms, surrogates and values above
/// U+10FFFF are ill-formed.
inline DecodedCharacter decode_utf8(const char* p, const char* end) {
  const auto byte = [&](int i) { return static_cast<std::uint8_t>(p[i]); };
  const auto continues = [&](int i) { return (byte(i) & 0xC0U) == 0x80U; };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead <= 0xDF && end - p >= 2 && continues(1)) {
    return {static_cast<char32_t>((lead & 0x1FU) << 6 | (byte(1) & 0x3FU)), 2};
  }
  if ((lead & 0xF0U) == 0xE0U && end - p >= 3 && continues(1) && continues(2)) {
    const auto value = static_cast<char32_t>((lead & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU));
    if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && end - p >= 4 && continues(1) && continues(2) && continues(3)) {
    const auto value = static_cast<char32_t>((lead & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 |
                                             (byte(3) & 0x3FU));
    if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4};
  }
  return {kInvalidCodePoint, 1};
}

/// True when every byte of `text` belongs to a well-formed character.
inline bool is_valid_utf8(std::string_view text) {
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    if (character.code_point == kInvalidCodePoint) return false;
    p += character.length;
  }
  return true;
}

/// The classes by which the known patterns split, as Hugging Face's regex engine (Unicode 16) sees them. Classes from
/// `space` on are `\s`.
enum class CharClass : std::uint8_t {
  other,    // none of the following, and every ill-formed byte
  letter,   // \p{L}
  number,   // \p{N}
  space,    // \s but for the next
  newline,  // \r and \n
};

namespace detail {

/// Calls `visit(CodePointRange, Category)` for each run of characters of one general category, in order.
template <class Visit>
void for_each_category(Visit&& visit) {
  for (std::size_t i = 0; i < std::size(kCategoryRuns); ++i) {
    const char32_t next = i + 1 < std::size(kCategoryRuns) ? kCategoryRuns[i + 1].first : kInvalidCodePoint;
    visit(CodePointRange{kCategoryRuns[i].first, next - 1}, kCategoryRuns[i].category);
  }
}

/// The characters of a script by its name in lower case, in order; none for a name that is not in the table.
inline std::vector<CodePointRange> script_ranges(std::string_view name) {
  std::vector<CodePointRange> ranges;
  for (const ScriptRange& range : kScriptRanges) {
    if (name == range.script) ranges.push_back({range.first, range.last});
  }
  return ranges;
}

}  // namespace detail

/// A class for every code point, in pages of 256.
template <class Class>
class CodePointTable {
 public:
  /// A table that gives `rest` everywhere, also for kInvalidCodePoint.
  explicit CodePointTable(Class rest) : rest_(rest), page_of_(0x1100, 0), pages_(256, rest) { low_.fill(rest); }

  void fill(detail::CodePointRange range, Class value) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      std::uint16_t& page = page_of_[c >> 8];
      if (page == 0) {
        page = static_cast<std::uint16_t>(pages_.size() / 256);
        pages_.resize(pages_.size() + 256, rest_);
      }
      pages_[std::size_t{page} * 256 + (c & 0xFF)] = value;
      if (c < low_.size()) low_[c] = value;
    }
  }
  void fill(std::span<const detail::CodePointRange> ranges, Class value) {
    for (const auto& range : ranges) fill(range, value);
  }

  Class operator[](char32_t c) const {
    return c < kInvalidCodePoint ? pages_[std::size_t{page_of_[c >> 8]} * 256 + (c & 0xFF)] : rest_;
  }
  /// The class of a code point below U+0800 (one or two bytes of UTF-8), found faster.
  Class low(std::uint32_t c) const { return low_[c]; }

 private:
  Class rest_;
  std::array<Class, 0x800> low_{};
  std::vector<std::uint16_t> page_of_;  // page 0 is all `rest_`
  std::vector<Class> pages_;
};

using CharClassTable = CodePointTable<CharClass>;

inline const CharClassTable& char_classes() {
  static const CharClassTable table = [] {
    CharClassTable classes(CharClass::other);
    detail::for_each_category([&](detail::CodePointRange range, detail::Category category) {
      if (category <= detail::Category::Lo) classes.fill(range, CharClass::letter);
      if (category >= detail::Category::Nd && category <= detail::Category::No) classes.fill(range, CharClass::number);
    });
    classes.fill(detail::kSpaceRanges, CharClass::space);
    classes.fill({'\n', '\n'}, CharClass::newline);
    classes.fill({'\r', '\r'}, CharClass::newline);
    return classes;
  }();
  return table;
}

namespace detail {

inline bool is_in(std::span<const CodePointRange> ranges, char32_t c) {
  const auto range = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const CodePointRange& candidate) { return candidate.last < c; });
  return range != ranges.end() && range->first <= c;
}

}  // namespace detail

/// `\w` of Hugging Face's `single_word` flag: letters, marks, digits, connectors and joiners.
inline bool is_word_character(char32_t c) { return detail::is_in(detail::kWordRanges, c); }

/// \p{Latin}: letters, and a few numerals.
inline bool is_latin(char32_t c) {
  static const std::vector<detail::CodePointRange> ranges = detail::script_ranges("latin");
  return detail::is_in(ranges, c);
}

/// The last character of `text`, which is not empty; what `decode_utf8` would give for it.
inline DecodedCharacter last_character(std::string_view text) {
  const char *const begin = text.data(), *const end = begin + text.size();
  const char* start = end - 1;
  while (start > begin && end - start < 4 && (static_cast<unsigned char>(*start) & 0xC0U) == 0x80U) --start;
  const DecodedCharacter character = decode_utf8(start, end);
  return start + character.length == end ? character : DecodedCharacter{kInvalidCodePoint, 1};
}

}  // namespace ilme::text
