/// Parsing one line of a JSON Lines file, whatever bytes its strings hold.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>

namespace ilme::data {

namespace detail {

/// Length of the well-formed UTF-8 sequence (RFC 3629) that `bytes` starts with; 0 when there is none.
inline std::size_t utf8_sequence_length(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xC0U) == 0x80U; };
  const unsigned lead = at(0);
  if (bytes.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4 || !follows(1)) return 0;
  if (lead < 0xE0) return 2;
  if (!follows(2)) return 0;
  if (lead < 0xF0) {
    const bool overlong = lead == 0xE0 && at(1) < 0xA0;
    const bool surrogate = lead == 0xED && at(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  const bool overlong = lead == 0xF0 && at(1) < 0x90;
  const bool too_large = lead == 0xF4 && at(1) >= 0x90;
  return overlong || too_large || !follows(3) ? 0 : 4;
}

/// The characters that stand for stray bytes while JSON is parsed: U+10FF80 + n for the byte 0x80 + n (private use;
/// where the line itself holds one, its bytes are treated as stray).
inline constexpr std::string_view kStandInPrefix = "\xF4\x8F";

inline bool is_stand_in(std::string_view bytes) {
  return bytes.size() >= 4 && bytes.substr(0, 2) == kStandInPrefix && static_cast<unsigned char>(bytes[2]) >= 0xBE;
}

inline std::string stand_ins_for_stray_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 64);
  while (!bytes.empty()) {
    if (const std::size_t length = utf8_sequence_length(bytes); length > 0 && !is_stand_in(bytes)) {
      out.append(bytes.substr(0, length));
      bytes.remove_prefix(length);
      continue;
    }
    const unsigned code = static_cast<unsigned char>(bytes.front()) - 0x80U;  // 0..127: two groups of 64
    out.append(kStandInPrefix);
    out.push_back(static_cast<char>(0xBE + (code >> 6)));
    out.push_back(static_cast<char>(0x80 + (code & 63U)));
    bytes.remove_prefix(1);
  }
  return out;
}

inline std::string stray_bytes_again(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (is_stand_in(text)) {
      const unsigned code =
          ((static_cast<unsigned char>(text[2]) - 0xBEU) << 6) | (static_cast<unsigned char>(text[3]) & 63U);
      out.push_back(static_cast<char>(0x80U + code));
      text.remove_prefix(4);
    } else {
      out.push_back(text.front());
      text.remove_prefix(1);
    }
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

/// Whether all of `bytes` is well-formed UTF-8.
inline bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = detail::utf8_sequence_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

/// Parses a JSON line; `where` ("file:line") opens the error. Bytes that are not UTF-8, which JSON forbids and web
/// text has, stay in the strings as they are.
inline Json parse_json_line(std::string_view line, const std::string& where) {
  if (is_utf8(line)) return parse_json(line, where);
  Json value = parse_json(detail::stand_ins_for_stray_bytes(line), where);
  detail::restore_stray_bytes(value);
  return value;
}

}  // namespace ilme::data
