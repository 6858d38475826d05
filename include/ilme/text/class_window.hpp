/// The classes of 64 bytes of text at once, as bit masks: what lets a scanner find the pieces of ordinary text without
/// a branch for each character.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <ilme/text/letter_case.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text::detail {

/// Bit i tells of byte i from the start, which is that of a character.
struct ClassWindow {
  static constexpr std::ptrdiff_t kBytes = 64;

  std::uint64_t letters = 0;   // every byte of a \p{L}, of any length
  std::uint64_t digits = 0;    // ASCII
  std::uint64_t spaces = 0;    // U+0020
  std::uint64_t newlines = 0;  // U+000A, but for those next to a space
  std::uint64_t others = 0;    // printable ASCII that is none of these, but for the apostrophe

  /// Bytes of the window before the first character that no mask tells of; 64 when there is none.
  int known() const { return std::countr_one(letters | digits | spaces | newlines | others); }
};

#if defined(__SSE2__)
inline __m128i load_part(const char* p, int part) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * part));
}
inline __m128i fill(int byte) { return _mm_set1_epi8(static_cast<char>(byte)); }
inline __m128i equal(__m128i bytes, int byte) { return _mm_cmpeq_epi8(bytes, fill(byte)); }
/// Comparisons are signed: bytes outside ASCII count as negative.
inline __m128i between(__m128i bytes, int first, int last) {
  return _mm_and_si128(_mm_cmpgt_epi8(bytes, fill(first - 1)), _mm_cmplt_epi8(bytes, fill(last + 1)));
}
inline void put(std::uint64_t& mask, __m128i lanes, int part) {
  mask |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(lanes))} << (16 * part);
}
#else
inline void put(std::uint64_t& mask, bool set, int byte) { mask |= std::uint64_t{set} << byte; }
#endif

/// Which of the 64 bytes at `p` are from `first` to `last`, both ASCII.
inline std::uint64_t bytes_between(const char* p, int first, int last) {
  std::uint64_t mask = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) put(mask, between(load_part(p, i), first, last), i);
#else
  for (int i = 0; i < ClassWindow::kBytes; ++i) put(mask, p[i] >= first && p[i] <= last, i);
#endif
  return mask;
}

/// Classifies the ASCII of the 64 bytes at `p`; `not_ascii` gets the other bytes.
inline ClassWindow classify_ascii(const char* p, std::uint64_t& not_ascii) {
  ClassWindow window;
  std::uint64_t not_plain = 0;
  not_ascii = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    const __m128i b = load_part(p, i);
    put(window.letters, between(_mm_or_si128(b, fill(0x20)), 'a', 'z'), i);
    put(window.digits, between(b, '0', '9'), i);
    put(window.spaces, equal(b, ' '), i);
    put(window.newlines, equal(b, '\n'), i);
    put(not_plain, _mm_or_si128(_mm_cmplt_epi8(b, fill('!')), _mm_or_si128(equal(b, '\''), equal(b, 0x7F))), i);
    put(not_ascii, b, i);
  }
#else
  for (int i = 0; i < ClassWindow::kBytes; ++i) {
    const auto b = static_cast<std::uint8_t>(p[i]);
    put(window.letters, static_cast<std::uint8_t>((b | 0x20U) - 'a') < 26, i);
    put(window.digits, static_cast<std::uint8_t>(b - '0') < 10, i);
    put(window.spaces, b == ' ', i);
    put(window.newlines, b == '\n', i);
    put(not_plain, b <= ' ' || b == '\'' || b >= 0x7F, i);
    put(not_ascii, b >= 0x80, i);
  }
#endif
  window.newlines &= ~(window.spaces << 1 | window.spaces >> 1);
  window.others = ~(window.letters | window.digits | not_plain);
  return window;
}

/// Calls `visit(code point, mask of its bytes)` for the characters that begin at the bits of `rest` and end within the
/// window at `p`.
template <class Visit>
void for_each_character(const char* p, const char* end, std::uint64_t rest, Visit&& visit) {
  while (rest != 0) {
    const int i = std::countr_zero(rest);
    const DecodedCharacter character = decode_utf8(p + i, end);
    if (i + character.length > static_cast<std::uint32_t>(ClassWindow::kBytes)) break;
    const std::uint64_t bytes = ((std::uint64_t{1} << character.length) - 1) << i;
    visit(character.code_point, bytes);
    rest &= ~bytes;
  }
}

/// Classifies the 64 bytes at `p`, all before `end`.
inline ClassWindow classify_window(const char* p, const char* end) {
  std::uint64_t not_ascii = 0;
  ClassWindow window = classify_ascii(p, not_ascii);
  if (not_ascii == 0) return window;
  // Two-byte letters are told by their lead: C3 to C9 (U+00C0 to U+027F: all letters but U+00D7, C3 97, and U+00F7,
  // C3 B7) and D0 and D1 (U+0400 to U+047F).
  std::uint64_t leads = 0, trails = 0, c3 = 0, signs = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    const __m128i b = load_part(p, i);
    put(leads, _mm_or_si128(between(b, 0xC3 - 256, 0xC9 - 256), equal(_mm_or_si128(b, fill(1)), 0xD1)), i);
    put(trails, _mm_cmplt_epi8(b, fill(0xC0)), i);
    put(c3, equal(b, 0xC3), i);
    put(signs, _mm_or_si128(equal(b, 0x97), equal(b, 0xB7)), i);
  }
#else
  for (int i = 0; i < ClassWindow::kBytes; ++i) {
    const auto b = static_cast<std::uint8_t>(p[i]);
    put(leads, (b >= 0xC3 && b <= 0xC9) || (b | 1) == 0xD1, i);
    put(trails, b >= 0x80 && b < 0xC0, i);
    put(c3, b == 0xC3, i);
    put(signs, b == 0x97 || b == 0xB7, i);
  }
#endif
  const std::uint64_t pairs = leads & trails >> 1 & ~(c3 & signs >> 1);
  window.letters |= pairs | pairs << 1;
  for_each_character(p, end, not_ascii & ~window.letters, [&](char32_t character, std::uint64_t bytes) {
    if (char_classes()[character] == CharClass::letter) window.letters |= bytes;
  });
  return window;
}

/// A window whose letters all have a case.
struct CaseWindow : ClassWindow {
  std::uint64_t capitals = 0;  // those of `letters` that are \p{Lu} or \p{Lt}; the others are \p{Ll}
};

/// Classifies the 64 bytes at `p`, all before `end`.
inline CaseWindow classify_case_window(const char* p, const char* end) {
  std::uint64_t not_ascii = 0;
  CaseWindow window{classify_ascii(p, not_ascii)};
  window.capitals = bytes_between(p, 'A', 'Z');
  for_each_character(p, end, not_ascii, [&](char32_t character, std::uint64_t bytes) {
    const CaseClass kind = case_classes()[character];
    if (is_any(kind, CaseClass::upper | CaseClass::lower)) window.letters |= bytes;
    if (kind == CaseClass::upper) window.capitals |= bytes;
  });
  return window;
}

}  // namespace ilme::text::detail
