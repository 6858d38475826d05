/// Sets of characters by their properties, as Hugging Face's regex engine (Oniguruma, Unicode 16) has them.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/text/unicode.hpp>

namespace ilme::text::detail {

/// A set of code points: ranges in order that do not touch.
class CodeSet {
 public:
  CodeSet() = default;
  template <std::size_t Count>
  explicit CodeSet(const CodePointRange (&ranges)[Count]) : ranges_(std::begin(ranges), std::end(ranges)) {}
  explicit CodeSet(std::vector<CodePointRange> ranges) : ranges_(std::move(ranges)) { tidy(); }

  void add(char32_t first, char32_t last) { ranges_.push_back({first, last}), tidy(); }
  void add(const CodeSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
    tidy();
  }
  CodeSet complement() const {
    CodeSet out;
    char32_t next = 0;
    for (const CodePointRange& range : ranges_) {
      if (range.first > next) out.ranges_.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= 0x10FFFF) out.ranges_.push_back({next, 0x10FFFF});
    return out;
  }
  CodeSet intersection(const CodeSet& other) const {
    CodeSet either = complement();
    either.add(other.complement());
    return either.complement();
  }
  bool empty() const noexcept { return ranges_.empty(); }

  /// The inside of a class of PCRE2's.
  std::string items() const {
    std::string out;
    char buffer[40];
    for (const CodePointRange& range : ranges_) {  // a surrogate is no end of a range for PCRE2
      const char32_t first = range.first >= 0xD800 && range.first < 0xE000 ? 0xE000 : range.first;
      const char32_t last = range.last >= 0xD800 && range.last < 0xE000 ? 0xD7FF : range.last;
      if (first > last) continue;
      std::snprintf(buffer, sizeof buffer, "\\x{%x}-\\x{%x}", static_cast<unsigned>(first),
                    static_cast<unsigned>(last));
      out += buffer;
    }
    return out;
  }

 private:
  void tidy() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
    std::vector<CodePointRange> joined;
    for (const CodePointRange& range : ranges_) {
      if (!joined.empty() && range.first <= joined.back().last + 1) {
        joined.back().last = std::max(joined.back().last, range.last);
      } else {
        joined.push_back(range);
      }
    }
    ranges_ = std::move(joined);
  }

  std::vector<CodePointRange> ranges_;
};

/// The characters of a general category by its short name in lower case ("l", "lu"); nothing for another name.
inline std::optional<CodeSet> category_set(std::string_view name) {
  static constexpr std::string_view kNames[] = {"lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl",
                                                "no", "pc", "pd", "ps", "pe", "pi", "pf", "po", "sm", "sc",
                                                "sk", "so", "zs", "zl", "zp", "cc", "cf", "cs", "co", "cn"};
  if (name.empty() || name.size() > 2) return std::nullopt;
  std::vector<CodePointRange> ranges;
  for_each_category([&](CodePointRange range, Category category) {
    if (kNames[static_cast<std::size_t>(category)].starts_with(name)) ranges.push_back(range);
  });
  if (ranges.empty()) return std::nullopt;
  return CodeSet(std::move(ranges));
}

/// `[[:word:]]`, and `\w` in brackets: that of the single_word flag without its joiners.
inline CodeSet posix_word_set() {
  CodeSet joiners;
  joiners.add(0x200C, 0x200D);
  return CodeSet(kWordRanges).intersection(joiners.complement());
}
/// `\w` outside brackets, which has some signs of Latin-1 too.
inline CodeSet word_set() {
  CodeSet set = posix_word_set();
  set.add(0xB2, 0xB3);
  set.add(0xB9, 0xB9);
  set.add(0xBC, 0xBE);
  return set;
}
inline CodeSet hex_digit_set() {
  CodeSet set;
  set.add('0', '9');
  set.add('A', 'F');
  set.add('a', 'f');
  return set;
}

/// A set, and the properties of PCRE2's that make up nearly all of it ("" when it is small).
struct NamedSet {
  CodeSet set;
  std::string native;
};

inline constexpr const char* kNativeWord = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";

/// A property or, with `posix`, a POSIX class by its name, in any case, with or without its spaces, hyphens and
/// underscores; nothing for another name.
inline std::optional<NamedSet> property_set(std::string_view given, bool posix) {
  std::string name;
  for (const char c : given) {
    if (c != ' ' && c != '-' && c != '_') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  static constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"letter", "l"},           {"mark", "m"},           {"number", "n"}, {"punctuation", "p"},
      {"symbol", "s"},           {"separator", "z"},      {"other", "c"},  {"uppercaseletter", "lu"},
      {"lowercaseletter", "ll"}, {"decimalnumber", "nd"}, {"digit", "nd"}, {"cntrl", "cc"}};
  for (const auto& [own, category] : kLongNames) {
    if (name == own) name = category;
  }
  if (auto set = category_set(name)) {
    name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
    return NamedSet{*std::move(set), "\\p{" + name + "}"};
  }
  if (name == "any") return NamedSet{CodeSet().complement(), ""};
  if (name == "space") return NamedSet{CodeSet(kSpaceRanges), ""};
  if (name == "word") return NamedSet{posix_word_set(), kNativeWord};
  if (name == "xdigit") return NamedSet{hex_digit_set(), ""};
  if (name == "punct") {
    NamedSet out{*category_set("p"), "\\p{P}"};
    if (posix) {
      out.set.add(*category_set("s"));
      out.native += "\\p{S}";
    }
    return out;
  }
  if (name == "blank") {
    NamedSet out{*category_set("zs"), ""};
    out.set.add('\t', '\t');
    return out;
  }
  std::vector<CodePointRange> script = script_ranges(name);
  if (script.empty()) return std::nullopt;
  return NamedSet{CodeSet(std::move(script)), ""};
}

}  // namespace ilme::text::detail
