/// Which tokens a word or a sentence becomes, to look at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ilme/text/tokenizer.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

struct SplitToken {
  TokenId id;
  std::string bytes;
};

/// The tokens of `text`, special tokens as text.
inline std::vector<SplitToken> split_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<SplitToken> tokens;
  for (const TokenId id : tokenizer.encode(text)) tokens.push_back({id, std::string(tokenizer.token_bytes(id))});
  return tokens;
}

/// The tokens that `word` becomes inside a sentence, after a space; the space itself is left out of their bytes.
inline std::vector<SplitToken> split_word(const Tokenizer& tokenizer, std::string_view word) {
  std::vector<SplitToken> tokens = split_text(tokenizer, " " + std::string(word));
  if (!tokens.empty() && tokens[0].bytes.starts_with(' ')) tokens[0].bytes.erase(0, 1);
  if (!tokens.empty() && tokens[0].bytes.empty()) tokens.erase(tokens.begin());
  return tokens;
}

/// Two hexadecimal digits.
inline std::string hex_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return {"0123456789ABCDEF"[value >> 4], "0123456789ABCDEF"[value & 15]};
}

/// True for a character that can be shown as it is: well-formed and no control character.
inline bool is_printable(char32_t c) { return c >= 0x20 && c != 0x7F && !(c >= 0x80 && c < 0xA0) && c < 0x110000; }

/// For people: "kitab|lar|dan"; bytes of a character that is cut, and control characters, as <C9>.
inline std::string show_split(const std::vector<SplitToken>& tokens) {
  std::string out;
  for (const SplitToken& token : tokens) {
    if (!out.empty()) out += '|';
    for (const char *p = token.bytes.data(), *end = p + token.bytes.size(); p < end;) {
      const DecodedCharacter character = decode_utf8(p, end);
      if (is_printable(character.code_point)) {
        out.append(p, character.length);
      } else {
        for (std::uint32_t i = 0; i < character.length; ++i) out += '<' + hex_byte(p[i]) + '>';
      }
      p += character.length;
    }
  }
  return out;
}

}  // namespace ilme::text
