/// Small parts of HTML: text that is safe to put between tags, and tokens whose every byte can be seen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/text/token_split.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// `text` for content and for attributes in quotes; what cannot be shown (control characters, bytes that are not UTF-8)
/// becomes U+FFFD.
inline std::string escape_html(std::string_view text) {
  std::string out;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    switch (character.code_point) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (is_printable(character.code_point)) {
          out.append(p, character.length);
        } else {
          out += "\uFFFD";
        }
    }
    p += character.length;
  }
  return out;
}

/// `<tag attributes>content</tag>`; the content is HTML already.
inline std::string element(std::string_view tag, std::string_view attributes, std::string_view content) {
  std::string out = "<" + std::string(tag);
  if (!attributes.empty()) out += ' ' + std::string(attributes);
  return out + ">" + std::string(content) + "</" + std::string(tag) + ">";
}

namespace detail {

/// The bytes of a token with whitespace and cut characters made visible.
inline std::string visible_token(std::string_view bytes) {
  std::string out;
  for (const char *p = bytes.data(), *end = p + bytes.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    const std::string_view unit(p, character.length);
    if (character.code_point == ' ') {
      out += "<i>\u00B7</i>";
    } else if (character.code_point == '\n') {
      out += "<i>\u21B5</i>";
    } else if (character.code_point == '\t') {
      out += "<i>\u2192</i>";
    } else if (is_printable(character.code_point)) {
      out += escape_html(unit);
    } else {
      for (const char byte : unit) out += "<b>" + hex_byte(byte) + "</b>";
    }
    p += character.length;
  }
  return out;
}

}  // namespace detail

/// Coloured tokens side by side (classes `token` and `k0` to `k4` in turn); each shows its id and bytes when the mouse
/// rests on it.
inline std::string tokens_html(const std::vector<SplitToken>& tokens) {
  constexpr std::size_t kColours = 5;
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& bytes = tokens[i].bytes;
    std::string title = "id " + std::to_string(tokens[i].id) + ", " + std::to_string(bytes.size()) +
                        (bytes.size() == 1 ? " byte:" : " bytes:");
    for (const char byte : bytes) title += ' ' + hex_byte(byte);
    out += element("span", "class=\"token k" + std::to_string(i % kColours) + "\" title=\"" + title + "\"",
                   detail::visible_token(bytes));
    if (bytes.ends_with(' ') || bytes.ends_with('\n') ||
        (i + 1 < tokens.size() && tokens[i + 1].bytes.starts_with(' '))) {
      out += "<wbr>";
    }
  }
  return element("span", "class=\"tokens\"", out);
}

}  // namespace ilme::text
