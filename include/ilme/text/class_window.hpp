/// The classes of 64 bytes of text at once, as bit masks: what lets a scanner find the pieces of ordinary text without
/// a branch for each character.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

/// Classifies the 64 bytes at `p`, all before `end`.
inline ClassWindow classify_window(const char* p, const char* end) {
  ClassWindow window;
  std::uint64_t not_plain = 0, not_ascii = 0;
  // Two-byte letters are told by their lead: C3 to C9 (U+00C0 to U+027F: all letters but U+00D7, C3 97, and U+00F7,
  // C3 B7) and D0 and D1 (U+0400 to U+047F).
  std::uint64_t leads = 0, trails = 0, c3 = 0, signs = 0;
#if defined(__SSE2__)
  const auto fill = [](int byte) { return _mm_set1_epi8(static_cast<char>(byte)); };
  // Comparisons are signed: bytes outside ASCII count as negative.
  const auto between = [&](__m128i bytes, int first, int last) {
    return _mm_and_si128(_mm_cmpgt_epi8(bytes, fill(first - 1)), _mm_cmplt_epi8(bytes, fill(last + 1)));
  };
  const auto equal = [&](__m128i bytes, int byte) { return _mm_cmpeq_epi8(bytes, fill(byte)); };
  const auto put = [](std::uint64_t& mask, __m128i lanes, int part) {
    mask |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(lanes))} << (16 * part);
  };
  __m128i parts[4];
  for (int i = 0; i < 4; ++i) {
    const __m128i b = parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i));
    put(window.letters, between(_mm_or_si128(b, fill(0x20)), 'a', 'z'), i);
    put(window.digits, between(b, '0', '9'), i);
    put(window.spaces, equal(b, ' '), i);
    put(window.newlines, equal(b, '\n'), i);
    put(not_plain, _mm_or_si128(_mm_cmplt_epi8(b, fill('!')), _mm_or_si128(equal(b, '\''), equal(b, 0x7F))), i);
    put(not_ascii, b, i);
  }
  if (not_ascii != 0) {
    for (int i = 0; i < 4; ++i) {
      const __m128i b = parts[i];
      put(leads, _mm_or_si128(between(b, 0xC3 - 256, 0xC9 - 256), equal(_mm_or_si128(b, fill(1)), 0xD1)), i);
      put(trails, _mm_cmplt_epi8(b, fill(0xC0)), i);
      put(c3, equal(b, 0xC3), i);
      put(signs, _mm_or_si128(equal(b, 0x97), equal(b, 0xB7)), i);
    }
  }
#else
  for (int i = 0; i < ClassWindow::kBytes; ++i) {
    const auto b = static_cast<std::uint8_t>(p[i]);
    const auto put = [&](std::uint64_t& mask, bool set) { mask |= std::uint64_t{set} << i; };
    put(window.letters, static_cast<std::uint8_t>((b | 0x20U) - 'a') < 26);
    put(window.digits, static_cast<std::uint8_t>(b - '0') < 10);
    put(window.spaces, b == ' ');
    put(window.newlines, b == '\n');
    put(not_plain, b <= ' ' || b == '\'' || b >= 0x7F);
    put(not_ascii, b >= 0x80);
    put(leads, (b >= 0xC3 && b <= 0xC9) || (b | 1) == 0xD1);
    put(trails, b >= 0x80 && b < 0xC0);
    put(c3, b == 0xC3);
    put(signs, b == 0x97 || b == 0xB7);
  }
#endif
  window.newlines &= ~(window.spaces << 1 | window.spaces >> 1);
  window.others = ~(window.letters | window.digits | not_plain);
  if (not_ascii == 0) return window;
  const std::uint64_t pairs = leads & trails >> 1 & ~(c3 & signs >> 1);
  window.letters |= pairs | pairs << 1;
  // The rest by the table; a character that reaches over the end stays unknown.
  for (std::uint64_t rest = not_ascii & ~window.letters; rest != 0;) {
    const int i = std::countr_zero(rest);
    const DecodedCharacter character = decode_utf8(p + i, end);
    if (i + character.length > static_cast<std::uint32_t>(ClassWindow::kBytes)) break;
    const std::uint64_t bytes = ((std::uint64_t{1} << character.length) - 1) << i;
    if (char_classes()[character.code_point] == CharClass::letter) window.letters |= bytes;
    rest &= ~bytes;
  }
  return window;
}

}  // namespace ilme::text::detail
