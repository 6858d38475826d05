/// Rewriting regular expressions of Oniguruma's Ruby syntax, which Hugging Face uses, for PCRE2.
/// Source: doc/RE and doc/SYNTAX.md of kkos/oniguruma 6.9.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/text/aligned_text.hpp>
#include <ilme/text/code_set.hpp>
#include <ilme/text/pcre2_set.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text::detail {

/// Rewrites one pattern. Classes become ranges of Unicode 16 as Hugging Face's engine has them (PCRE2 10.42 knows
/// Unicode 14). Throws InputError on what PCRE2 cannot do alike.
class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(std::string_view pattern) : in_(pattern) {}

  std::string translate() {
    alternatives(0);
    if (at_ < in_.size()) refuse("an unmatched )");
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kDeepest = 200;  // PCRE2 stops at 250

  struct Options {
    bool ignore_case = false, extended = false;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError("pattern \"", in_, "\" is not supported at byte ", at_, ": ", what);
  }
  bool at_end() const { return at_ >= in_.size(); }
  bool take(std::string_view text) {
    if (!in_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t next_character() {
    if (at_end()) refuse("it ends too early");
    const DecodedCharacter character = decode_utf8(in_.data() + at_, in_.data() + in_.size());
    if (character.code_point == kInvalidCodePoint) refuse("it is not valid UTF-8");
    at_ += character.length;
    return character.code_point;
  }

  /// Up to the end or the ) of the group, which stays.
  void alternatives(std::size_t depth) {
    if (depth > kDeepest) refuse("more than " + std::to_string(kDeepest) + " groups deep");
    const Options outer = options_;
    while (!at_end() && in_[at_] != ')') {
      if (take("|")) {
        out_ += '|';
        literals_.clear();
        continue;
      }
      const std::size_t start = out_.size();
      if (atom(depth)) quantifiers(start);
    }
    options_ = outer;
  }

  /// False when nothing was written that a quantifier could follow.
  bool atom(std::size_t depth) {
    if (options_.extended) {
      if (std::string_view(" \t\r\n\f\v").find(in_[at_]) != std::string_view::npos) return ++at_, false;
      if (in_[at_] == '#') {
        at_ = std::min(in_.find('\n', at_), in_.size());
        return false;
      }
    }
    const char c = in_[at_];
    if (c == '(') return group(depth);
    if (c == '[') {
      ++at_;
      const Bracket found = bracket(depth);
      return put(class_of(found.plain ? found.items : found.set.items(), found.negated));
    }
    if (c == '\\') return escape();
    if (c == '.' || c == '^' || c == '$') return ++at_, put(std::string(1, c));
    if (c == '*' || c == '+' || c == '?') refuse("nothing to repeat");
    return literal(next_character());
  }

  bool put(const std::string& text) {
    literals_.clear();
    out_ += text;
    return true;
  }
  static std::string class_of(const std::string& items, bool negated) {
    if (items.empty()) return negated ? "(?s:.)" : "(?!)";
    return (negated ? "[^" : "[") + items + "]";
  }
  /// A class outside brackets is the same in any case.
  bool put_set(const NamedSet& named, bool negated) {
    const std::string text = class_of(class_items(named.set, named.native), negated);
    return put(options_.ignore_case ? "(?-i:" + text + ")" : text);
  }

  bool literal(char32_t code) {
    if (options_.ignore_case) {
      // Without regard to case, Oniguruma takes one character for two or three: a sharp s for "ss".
      literals_ += code < 0x80 ? static_cast<char32_t>(std::tolower(static_cast<int>(code))) : code;
      const std::u32string_view tail =
          std::u32string_view(literals_).substr(literals_.size() - std::min<std::size_t>(literals_.size(), 2));
      const bool two = tail == U"ss" || tail == U"st" || tail == U"ff" || tail == U"fi" || tail == U"fl";
      const bool one = (code >= 0x300 && code <= 0x36F) || code == 0x2BC || code == 0x2BE || code == 0xDF ||
                       code == 0x130 || code == 0x149 || code == 0x1F0 || code == 0x390 || code == 0x3B0 ||
                       code == 0x587 || (code >= 0x1E96 && code <= 0x1E9E) || (code >= 0x1F50 && code <= 0x1FFF) ||
                       (code >= 0xFB00 && code <= 0xFB17);
      if (two || one) refuse("letters that match several characters without regard to case");
    }
    if (code < 0x80 && !std::isalnum(static_cast<int>(code))) {
      char buffer[16];
      std::snprintf(buffer, sizeof buffer, "\\x{%x}", static_cast<unsigned>(code));
      out_ += buffer;
    } else {
      append_unit(out_, code);
    }
    return true;
  }

  /// The quantifiers after what starts at `start` of the output. One after another is one of a group: an interval is
  /// never possessive here, and `{n}?` is as `(?:x{n})?`.
  void quantifiers(std::size_t start) {
    for (bool again = false;; again = true) {
      std::string quantifier;
      bool exact = false;
      if (at_end()) return;
      const char c = in_[at_];
      if (c == '*' || c == '+' || c == '?') {
        ++at_;
        quantifier = c;
        if (take("?")) {
          quantifier += '?';
        } else if (take("+")) {
          quantifier += '+';
        }
      } else if (c == '{' && interval(quantifier, exact)) {
        if (!exact && take("?")) quantifier += '?';
      } else {
        return;
      }
      literals_.clear();
      if (again) out_.insert(start, "(?:").append(")");
      out_ += quantifier;
    }
  }

  /// {n}, {n,}, {,m} or {n,m}; anything else is text.
  bool interval(std::string& out, bool& exact) {
    std::size_t i = at_ + 1;
    const auto digits = [&] {
      const std::size_t first = i;
      while (i < in_.size() && std::isdigit(static_cast<unsigned char>(in_[i]))) ++i;
      return std::string(in_.substr(first, i - first));
    };
    const std::string low = digits();
    exact = i >= in_.size() || in_[i] != ',';
    if (!exact) ++i;
    const std::string high = exact ? "" : digits();
    if (i >= in_.size() || in_[i] != '}' || (low.empty() && high.empty())) return false;
    at_ = i + 1;
    out = "{" + (low.empty() ? "0" : low) + (exact ? "" : ",") + high + "}";
    return true;
  }

  bool group(std::size_t depth) {
    ++at_;
    if (take("?#")) {
      while (!at_end() && in_[at_] != ')') ++at_;
      if (!take(")")) refuse("a comment without an end");
      return false;
    }
    if (in_.substr(at_).starts_with("*")) refuse("a callout");
    Options inner = options_;
    std::string opening = "(";
    if (take("?")) {
      bool found = false;
      for (const char* kind : {"<=", "<!", ":", "=", "!", ">"}) {
        if (!found && take(kind)) {
          opening = std::string("(?") + kind;
          found = true;
        }
      }
      if (!found && (take("<") || take("'"))) {
        const char close = in_[at_ - 1] == '<' ? '>' : '\'';
        opening = "(?<" + name(close) + ">";
        named_ = found = true;
      }
      if (!found && !options_group(inner, opening)) {
        // Options up to the end of the enclosing group: its other alternatives belong to what they apply to.
        out_ += opening;
        const Options outer = std::exchange(options_, inner);
        alternatives(depth + 1);
        options_ = outer;
        out_ += ')';
        return false;
      }
    } else {
      numbered_ = true;
    }
    const Options outer = std::exchange(options_, inner);
    out_ += opening;
    alternatives(depth + 1);
    options_ = outer;
    if (!take(")")) refuse("a group without an end");
    if (named_ && numbered_) refuse("groups with and without names together");
    out_ += ')';  // letters within and after the group may match together
    return true;
  }

  /// The letters after `(?`; false when they end with `)`.
  bool options_group(Options& inner, std::string& opening) {
    std::string on, off;
    bool negative = false;
    while (true) {
      if (take("-")) {
        negative = true;
      } else if (take("i")) {
        inner.ignore_case = !negative;
        (negative ? off : on) += 'i';
      } else if (take("m")) {  // in Ruby the dot that matches newlines
        (negative ? off : on) += 's';
      } else if (take("x")) {
        inner.extended = !negative;
      } else {
        break;
      }
    }
    opening = "(?" + on + (off.empty() ? "" : "-" + off) + ":";
    if (take(":")) return true;
    if (!take(")")) refuse("an unknown kind of group");
    return false;
  }

  std::string name(char close) {
    const std::size_t end = in_.find(close, at_);
    if (end == std::string_view::npos || end == at_) refuse("a name without an end");
    std::string found(in_.substr(at_, end - at_));
    if (!std::all_of(found.begin(), found.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; })) {
      refuse("the name \"" + found + "\"");
    }
    at_ = end + 1;
    return found;
  }

  /// The class that an escape stands for inside and outside brackets; `at_` is after the backslash.
  std::optional<std::pair<NamedSet, bool>> escaped_class(bool in_brackets) {
    const char c = in_[at_];
    const auto found = [&](CodeSet set, const char* native, bool negated) {
      ++at_;
      return std::pair(NamedSet{std::move(set), native}, negated);
    };
    switch (c) {
      case 'd':
      case 'D':
        return found(*category_set("nd"), "\\p{Nd}", c == 'D');
      case 's':
      case 'S':
        return found(CodeSet(kSpaceRanges), "", c == 'S');
      case 'w':
      case 'W':
        return found(in_brackets ? posix_word_set() : word_set(), kNativeWord, c == 'W');
      case 'h':
      case 'H':
        return found(hex_digit_set(), "", c == 'H');
      default:
        break;
    }
    if ((c != 'p' && c != 'P') || !in_.substr(at_ + 1).starts_with("{")) return std::nullopt;
    at_ += 2;
    bool negated = c == 'P';
    if (take("^")) negated = !negated;
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("a property without an end");
    const std::string_view property = in_.substr(at_, end - at_);
    auto set = property_set(property, false);
    if (!set) refuse("the property \"" + std::string(property) + "\"");
    at_ = end + 1;
    return std::pair(*std::move(set), negated);
  }

  /// The character that an escape stands for; `at_` is after the backslash.
  char32_t escaped_character() {
    const char32_t c = next_character();
    const auto number = [&](std::size_t most, int base) {
      char32_t value = 0;
      std::size_t count = 0;
      for (; count < most && !at_end() && std::isxdigit(static_cast<unsigned char>(in_[at_])); ++count, ++at_) {
        const int digit =
            std::isdigit(static_cast<unsigned char>(in_[at_])) ? in_[at_] - '0' : (in_[at_] | 32) - 'a' + 10;
        if (digit >= base) break;
        value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
      }
      if (count == 0 && base == 16) refuse("a number of a character without digits");
      return value;
    };
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return 7;
      case 'e':
        return 27;
      case '0':
        return number(2, 8);
      case 'u': {
        const std::size_t start = at_;
        const char32_t value = number(4, 16);
        if (at_ != start + 4) refuse("a number of a character without four digits");
        return value;
      }
      case 'x': {
        const bool braces = take("{");
        const char32_t value = number(braces ? 8 : 2, 16);
        if (braces && !take("}")) refuse("a number of a character without an end");
        if ((!braces && value >= 0x80) || value > 0x10FFFF) refuse("a number that is no character");
        return value;
      }
      case 'c':
      case 'C':
      case 'M':
        refuse("a control character by its name");
      default:
        return c;
    }
  }

  bool escape() {
    ++at_;
    if (at_end()) refuse("it ends with a backslash");
    if (const auto found = escaped_class(false)) return put_set(found->first, found->second);
    const char c = in_[at_];
    switch (c) {
      case 'b':
      case 'B': {
        ++at_;
        const std::string word = class_of(class_items(word_set(), kNativeWord), false), before = "(?<=" + word + ")",
                          after = "(?=" + word + ")", not_before = "(?<!" + word + ")", not_after = "(?!" + word + ")";
        return put("(?-i:" + before + (c == 'b' ? not_after : after) + "|" + not_before +
                   (c == 'b' ? after : not_after) + ")");
      }
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
      case 'K':
        ++at_;
        return put(std::string("\\") + c);
      case 'R':
        ++at_;
        return put("(?>\\r\\n|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])");
      case 'N':
        ++at_;
        return put("[^\\n]");
      case 'O':
        ++at_;
        return put("(?s:.)");
      case 'X':
      case 'y':
      case 'Y':
        refuse("text segments");
      case 'k':
      case 'g': {
        const bool call = c == 'g';
        ++at_;
        if (!take("<") && !take("'")) return literal(static_cast<char32_t>(c));
        const std::string target = name(in_[at_ - 1] == '<' ? '>' : '\'');
        return put((call ? "\\g<" : "\\k<") + target + ">");
      }
      default:
        break;
    }
    if (c >= '1' && c <= '9') {
      ++at_;
      if (!at_end() && std::isdigit(static_cast<unsigned char>(in_[at_]))) refuse("a group with a number above 9");
      return put(std::string("\\g{") + c + "}");
    }
    return literal(escaped_character());
  }

  struct Bracket {
    CodeSet set;
    bool negated = false;
    bool plain = true;  // a list of characters, ranges and classes: `items` then says the same as `set`
    std::string items;
  };

  /// The rest of a bracket class, after its [.
  Bracket bracket(std::size_t depth) {
    if (depth > kDeepest) refuse("classes too deep");
    Bracket out;
    out.negated = take("^");
    std::optional<CodeSet> left;  // of &&
    // Without regard to case PCRE2 takes a property for more than its characters in both cases.
    const auto add = [&](const NamedSet& named, bool negated) {
      if (negated && options_.ignore_case) refuse("a negated class within a class without regard to case");
      const CodeSet set = negated ? named.set.complement() : named.set;
      out.set.add(set);
      out.items += negated || options_.ignore_case ? set.items() : class_items(set, named.native);
    };
    for (bool first = true;; first = false) {
      if (at_end()) refuse("a class without an end");
      if (in_[at_] == ']' && !first) break;
      if (take("&&")) {
        left = left ? left->intersection(out.set) : out.set;
        out.set = CodeSet();
        out.plain = false;
      } else if (take("[:")) {
        const bool inverse = take("^");
        const std::size_t end = in_.find(":]", at_);
        const std::string_view posix = in_.substr(at_, end == std::string_view::npos ? 0 : end - at_);
        const auto found = posix.size() > 2 ? property_set(posix, true) : std::nullopt;
        if (!found) refuse("the class [:" + std::string(posix) + ":]");
        at_ = end + 2;
        add(*found, inverse);
      } else if (take("[")) {
        const Bracket inner = bracket(depth + 1);
        add({inner.set, ""}, inner.negated);
      } else if (in_[at_] == '\\') {
        ++at_;
        if (at_end()) refuse("it ends with a backslash");
        if (const auto found = escaped_class(true)) {
          add(found->first, found->second);
          if (in_.substr(at_).starts_with("-") && !in_.substr(at_).starts_with("-]")) refuse("a range from a class");
        } else {
          add_range(out, in_[at_] == 'b' ? (++at_, char32_t{8}) : escaped_character());
        }
      } else {
        add_range(out, next_character());
      }
    }
    ++at_;
    if (left) out.set = left->intersection(out.set);
    return out;
  }

  /// The character `from`, or the range that it opens.
  void add_range(Bracket& out, char32_t from) {
    char32_t to = from;
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with("-") && !rest.starts_with("-]") && rest.size() > 1) {
      ++at_;
      if (rest.starts_with("-[") || rest.starts_with("-&&")) refuse("a range without an end");
      if (take("\\")) {
        if (at_end() || escaped_class(true)) refuse("a range to a class");
        to = escaped_character();
      } else {
        to = next_character();
      }
    }
    if (to < from) refuse("a range that ends before it starts");
    if (options_.ignore_case && from == to && from > 0x7F) check_single(from);
    CodeSet range;
    range.add(from, to);
    out.items += range.items();
    out.set.add(range);
  }
  void check_single(char32_t code) {
    const std::u32string before = std::exchange(literals_, {});
    const std::size_t size = out_.size();
    literal(code);
    out_.resize(size);
    literals_ = before;
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  Options options_;
  std::u32string literals_;  // the present run, when case is ignored
  bool named_ = false, numbered_ = false;
};

}  // namespace ilme::text::detail
