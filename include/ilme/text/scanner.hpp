/// Hand-written scanners for the split patterns of Llama 3, Qwen 2 and GPT-2: what the regular expressions match,
/// without a regular expression engine. A byte of ill-formed UTF-8 is one character of no class (not \s, \p{L} or
/// \p{N}).
#pragma once

#include <cstddef>
#include <string_view>

#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
/// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// As kLlama3Pattern, with single digits.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// tiktoken's way to write kLlama3Pattern for cl100k: it splits every text alike.
inline constexpr std::string_view kCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";

namespace detail {

/// Walks over one text and tells the classes of its characters.
class ClassCursor {
 public:
  struct Character {
    CharClass kind;
    std::uint32_t length;
  };

  explicit ClassCursor(std::string_view text) : end_(text.data() + text.size()), classes_(char_classes()) {}

  /// The character at `p`, which is before the end.
  Character at(const char* p) const {
    const auto byte = static_cast<std::uint8_t>(*p);
    if (byte < 0x80) return {classes_.low(byte), 1};
    const DecodedCharacter character = decode_utf8(p, end_);
    return {classes_[character.code_point], character.length};
  }
  /// The end of the run of `kind` that starts at `p`; `p` itself when there is none.
  const char* skip(const char* p, CharClass kind) const {
    while (p < end_) {
      const Character character = at(p);
      if (character.kind != kind) break;
      p += character.length;
    }
    return p;
  }
  /// As `skip`, over at most `limit` characters.
  const char* skip(const char* p, CharClass kind, int limit) const {
    for (; limit > 0 && p < end_; --limit) {
      const Character character = at(p);
      if (character.kind != kind) break;
      p += character.length;
    }
    return p;
  }

  /// The end of the whitespace piece at `p`, which is on whitespace, by `\s+(?!\S)|\s+`, or with `by_lines` by
  /// `\s*[\r\n]+|\s+(?!\S)|\s+`.
  const char* skip_space(const char* p, bool by_lines) const {
    const char *last = p, *after_newline = nullptr, *run = p;
    while (run < end_) {
      const Character character = at(run);
      if (character.kind < CharClass::space) break;
      last = run;
      run += character.length;
      if (character.kind == CharClass::newline) after_newline = run;
    }
    if (by_lines && after_newline != nullptr) return after_newline;
    return run == end_ || last == p ? run : last;
  }

  const char* end() const { return end_; }

 private:
  const char* end_;
  const CharClassTable& classes_;
};

/// Bytes of the English contraction at `p` ('s, 't, 're, 've, 'm, 'll, 'd), or 0. Without regard to case U+017F, the
/// long s, is an s.
inline std::size_t contraction_length(const char* p, const char* end, bool ignore_case) {
  if (*p != '\'' || end - p < 2) return 0;
  const auto lower = [&](char c) { return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const char first = lower(p[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - p < 3) return 0;
  const char second = lower(p[2]);
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return ignore_case && p[1] == '\xC5' && p[2] == '\xBF' ? 3 : 0;
}

}  // namespace detail

/// Calls `on_piece(string_view)` for each match of kLlama3Pattern in order; the pieces together are `text`.
/// `max_digits` 1 gives kQwen2Pattern.
template <class OnPiece>
void scan_llama3(std::string_view text, int max_digits, OnPiece&& on_piece) {
  const detail::ClassCursor cursor(text);
  const char *p = text.data(), *const end = cursor.end();
  while (p < end) {
    const char* const start = p;
    const auto [kind, length] = cursor.at(p);
    const char* const next = p + length;
    if (kind == CharClass::letter) {
      p = cursor.skip(next, CharClass::letter);
    } else if (kind == CharClass::number) {
      p = cursor.skip(next, CharClass::number, max_digits - 1);
    } else if (kind == CharClass::newline) {
      p = cursor.skip_space(p, true);
    } else if (const std::size_t contraction = detail::contraction_length(p, end, true)) {
      p += contraction;
    } else {
      const CharClass following = next < end ? cursor.at(next).kind : CharClass::newline;
      if (following == CharClass::letter) {
        p = cursor.skip(next, CharClass::letter);
      } else if (kind == CharClass::other || (*p == ' ' && following == CharClass::other)) {
        p = cursor.skip(cursor.skip(next, CharClass::other), CharClass::newline);
      } else {
        p = cursor.skip_space(p, true);
      }
    }
    on_piece(std::string_view(start, static_cast<std::size_t>(p - start)));
  }
}

/// The same for kGpt2Pattern.
template <class OnPiece>
void scan_gpt2(std::string_view text, OnPiece&& on_piece) {
  const detail::ClassCursor cursor(text);
  const char *p = text.data(), *const end = cursor.end();
  while (p < end) {
    const char* const start = p;
    if (const std::size_t contraction = detail::contraction_length(p, end, false)) {
      p += contraction;
    } else {
      auto [kind, length] = cursor.at(p);
      const char* next = p + length;
      if (*p == ' ' && next < end) {
        const auto following = cursor.at(next);
        if (following.kind < CharClass::space) {
          kind = following.kind;
          next += following.length;
        }
      }
      p = kind < CharClass::space ? cursor.skip(next, kind) : cursor.skip_space(p, false);
    }
    on_piece(std::string_view(start, static_cast<std::size_t>(p - start)));
  }
}

}  // namespace ilme::text
