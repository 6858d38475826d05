/// Hand-written scanners for the split patterns of Llama 3, Qwen 2 and GPT-2: what the regular expressions match,
/// without a regular expression engine. A byte of ill-formed UTF-8 is one character of no class (not \s, \p{L} or
/// \p{N}).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <ilme/text/class_window.hpp>
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

namespace detail {

/// The end of the piece of kLlama3Pattern at `p`; `max_digits` 1: of kQwen2Pattern.
inline const char* llama3_piece_end(const ClassCursor& cursor, const char* p, int max_digits) {
  const auto [kind, length] = cursor.at(p);
  const char* const next = p + length;
  if (kind == CharClass::letter) return cursor.skip(next, CharClass::letter);
  if (kind == CharClass::number) return cursor.skip(next, CharClass::number, max_digits - 1);
  if (kind == CharClass::newline) return cursor.skip_space(p, true);
  if (const std::size_t contraction = contraction_length(p, cursor.end(), true)) return p + contraction;
  const CharClass following = next < cursor.end() ? cursor.at(next).kind : CharClass::newline;
  if (following == CharClass::letter) return cursor.skip(next, CharClass::letter);
  if (kind == CharClass::other || (*p == ' ' && following == CharClass::other)) {
    return cursor.skip(cursor.skip(next, CharClass::other), CharClass::newline);
  }
  return cursor.skip_space(p, true);
}

/// The same for kGpt2Pattern.
inline const char* gpt2_piece_end(const ClassCursor& cursor, const char* p) {
  if (const std::size_t contraction = contraction_length(p, cursor.end(), false)) return p + contraction;
  auto [kind, length] = cursor.at(p);
  const char* next = p + length;
  if (*p == ' ' && next < cursor.end()) {
    const auto following = cursor.at(next);
    if (following.kind < CharClass::space) {
      kind = following.kind;
      next += following.length;
    }
  }
  return kind < CharClass::space ? cursor.skip(next, kind) : cursor.skip_space(p, false);
}

/// The first and the last bit of each run: where `\s+(?!\S)|\s+` starts in a run of spaces.
inline std::uint64_t run_edges(std::uint64_t bits) { return bits & (~(bits << 1) | ~(bits >> 1)); }

/// The others that open a piece: those that are not behind a space. A letter behind one belongs to its piece.
inline std::uint64_t opening_others(const ClassWindow& w) { return w.others & ~(w.others << 1) & ~(w.spaces << 1); }

/// Every `size`th digit of each run, from its first.
inline std::uint64_t digit_groups(std::uint64_t digits, int size) {
  std::uint64_t behind = digits, starts = 0;
  for (int i = 1; i <= size; ++i) behind &= digits << i;
  for (std::uint64_t group = digits & ~(digits << 1); group != 0; group = group << size & behind) starts |= group;
  return starts;
}

/// Where pieces start, but for those that start with digits, by all patterns that are like Llama 3's: bit i depends on
/// bytes up to i + 1 of a window that begins with a piece.
inline std::uint64_t word_starts(const ClassWindow& w) {
  const std::uint64_t opening = opening_others(w);
  return run_edges(w.spaces) | opening | (w.newlines & ~(w.newlines << 1) & ~(w.others << 1)) |
         (w.letters & ~(w.letters << 1) & ~(w.spaces << 1) & ~(opening << 1));
}

/// Where pieces of kLlama3Pattern start in a window; `max_digits` 1: of kQwen2Pattern.
inline std::uint64_t llama3_starts(const ClassWindow& w, int max_digits) {
  return word_starts(w) | (max_digits == 1 ? w.digits : digit_groups(w.digits, max_digits));
}

/// The same for kGpt2Pattern.
inline std::uint64_t gpt2_starts(const ClassWindow& w) {
  const auto run_starts = [](std::uint64_t bits) { return bits & ~(bits << 1); };
  return run_edges(w.spaces) | run_edges(w.newlines) |
         ((run_starts(w.letters) | run_starts(w.digits) | run_starts(w.others)) & ~(w.spaces << 1));
}

/// Cuts `text` into pieces: by windows, `classify(p, end)`, where `starts(window)` can tell, else one by one, by
/// `piece_end(p)`.
template <class Classify, class Starts, class PieceEnd, class OnPiece>
void scan(std::string_view text, Classify&& classify, Starts&& starts, PieceEnd&& piece_end, OnPiece&& on_piece) {
  const char *p = text.data(), *const end = p + text.size();
  const auto emit_to = [&](const char* next) {
    on_piece(std::string_view(p, static_cast<std::size_t>(next - p)));
    p = next;
  };
  while (end - p >= ClassWindow::kBytes) {
    const auto window = classify(p, end);
    const char* const base = p;
    // A start depends on the byte behind it, and the first is where we are.
    const int known = window.known();
    if (known > 2) {
      std::uint64_t bits = starts(window) & ((std::uint64_t{1} << (known - 1)) - 2);
      for (; bits != 0; bits &= bits - 1) emit_to(base + std::countr_zero(bits));
      // A character that reaches over the end is not known either.
      if (known > ClassWindow::kBytes - 4 && p > base) continue;
    }
    do {
      emit_to(piece_end(p));
    } while (p < base + known);
  }
  while (p < end) emit_to(piece_end(p));
}

}  // namespace detail

/// Calls `on_piece(string_view)` for each match of kLlama3Pattern in order; the pieces together are `text`.
/// `max_digits` 1 gives kQwen2Pattern.
template <class OnPiece>
void scan_llama3(std::string_view text, int max_digits, OnPiece&& on_piece) {
  const detail::ClassCursor cursor(text);
  detail::scan(
      text, detail::classify_window,
      [=](const detail::ClassWindow& window) { return detail::llama3_starts(window, max_digits); },
      [=](const char* p) { return detail::llama3_piece_end(cursor, p, max_digits); }, on_piece);
}

/// The same for kGpt2Pattern.
template <class OnPiece>
void scan_gpt2(std::string_view text, OnPiece&& on_piece) {
  const detail::ClassCursor cursor(text);
  detail::scan(
      text, detail::classify_window, detail::gpt2_starts,
      [=](const char* p) { return detail::gpt2_piece_end(cursor, p); }, on_piece);
}

}  // namespace ilme::text
