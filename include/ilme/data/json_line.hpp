/// Parsing one line of a JSON Lines file, whatever bytes its strings hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::data {

namespace detail {

/// The first of 128 private-use characters that stand for the bytes 0x80..0xFF while JSON is parsed. Where the line
/// holds one of them itself, its bytes are treated as stray ones, so nothing is confused.
inline constexpr char32_t kStandIns = 0x10FF80;

/// `text` with each stray byte replaced by its stand-in.
inline std::string stand_ins_for_stray_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  const auto stand_in = [&](char byte) {
    const unsigned code = static_cast<unsigned char>(byte) - 0x80U;
    out += "\xF4\x8F";
    out += static_cast<char>(0xBEU + (code >> 6));
    out += static_cast<char>(0x80U + (code & 0x3FU));
  };
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const text::DecodedCharacter character = text::decode_utf8(p, end);
    if (character.code_point < kStandIns) {
      out.append(p, character.length);
    } else {
      for (std::uint32_t i = 0; i < character.length; ++i) stand_in(p[i]);
    }
    p += character.length;
  }
  return out;
}

/// The other way round.
inline std::string stray_bytes_again(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const text::DecodedCharacter character = text::decode_utf8(p, end);
    if (character.code_point < kStandIns) {
      out.append(p, character.length);
    } else {
      out += static_cast<char>(0x80U + (character.code_point - kStandIns));
    }
    p += character.length;
  }
  return out;
}

inline void restore_stray_bytes(Json& value) {
  if (value.is_string()) {
    value = stray_bytes_again(value.get_ref<const std::string&>());
  } else if (value.is_structured()) {
    for (auto& member : value) restore_stray_bytes(member);
  }
}

}  // namespace detail

/// Parses a JSON line; `where` ("file:line") opens the error. Bytes that are not UTF-8, which JSON forbids and web
/// text has, stay in the strings as they are.
inline Json parse_json_line(std::string_view line, const std::string& where) {
  if (text::is_valid_utf8(line)) return parse_json(line, where);
  Json value = parse_json(detail::stand_ins_for_stray_bytes(line), where);
  detail::restore_stray_bytes(value);
  return value;
}

}  // namespace ilme::data
