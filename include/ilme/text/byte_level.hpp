/// GPT-2's byte-level alphabet: each byte as one printable character, as `tokenizer.json` writes tokens.
/// Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; encoder.py of openai/gpt-2.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include <ilme/text/unicode.hpp>

namespace ilme::text {

namespace detail {

/// Code point for each byte: printable Latin-1 stands for itself, the other 68 bytes take U+0100 and up in order.
inline constexpr std::array<char32_t, 256> kByteLevelCharacters = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table[byte] = printable ? byte : next++;
  }
  return table;
}();

/// The inverse: byte for each code point below 324, or -1.
inline constexpr std::array<std::int16_t, 324> kByteLevelBytes = [] {
  std::array<std::int16_t, 324> table{};
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 256; ++byte) table[kByteLevelCharacters[byte]] = static_cast<std::int16_t>(byte);
  return table;
}();

}  // namespace detail

/// The bytes in the order of their characters' code points: the order in which training gives them ids.
inline std::array<std::uint8_t, 256> byte_level_alphabet() {
  std::array<std::uint8_t, 256> bytes;
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::sort(bytes.begin(), bytes.end(), [](std::uint8_t a, std::uint8_t b) {
    return detail::kByteLevelCharacters[a] < detail::kByteLevelCharacters[b];
  });
  return bytes;
}

/// `bytes` written in the alphabet (UTF-8).
inline std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const char32_t character = detail::kByteLevelCharacters[static_cast<std::uint8_t>(c)];
    if (character < 0x80) {
      out += static_cast<char>(character);
    } else {
      out += static_cast<char>(0xC0U | character >> 6);
      out += static_cast<char>(0x80U | (character & 0x3FU));
    }
  }
  return out;
}

/// The bytes that `token` (UTF-8) stands for; nothing when it holds a character outside the alphabet.
inline std::optional<std::string> from_byte_level(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (const char *p = token.data(), *end = p + token.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    p += character.length;
    if (character.code_point >= detail::kByteLevelBytes.size()) return std::nullopt;
    const std::int16_t byte = detail::kByteLevelBytes[character.code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace ilme::text
