/// Decoding ids one at a time into whole characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <ilme/text/tokenizer.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

namespace detail {

/// Bytes at the end of `bytes` that start a UTF-8 character and may be completed by what follows; 0 to 3.
inline std::size_t incomplete_tail(std::string_view bytes) {
  for (std::size_t length = 1; length <= 3 && length <= bytes.size(); ++length) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[bytes.size() - length + i]); };
    if ((at(0) & 0xC0U) == 0x80U) continue;  // a continuation: its lead is further left
    const std::size_t needed = at(0) >= 0xF0 && at(0) <= 0xF4  ? 4
                               : at(0) >= 0xE0 && at(0) < 0xF0 ? 3
                               : at(0) >= 0xC2 && at(0) < 0xE0 ? 2
                                                               : 1;
    if (needed <= length) return 0;
    // The smallest completion tells overlong forms, surrogates and values that are too large.
    if (length == 1) return length;
    std::string completed(bytes.substr(bytes.size() - length));
    completed.resize(needed, '\x80');
    return decode_utf8(completed.data(), completed.data() + needed).code_point != kInvalidCodePoint ? length : 0;
  }
  return 0;
}

}  // namespace detail

/// Turns a stream of ids into text that is cut only between characters: bytes of an unfinished character wait for the
/// rest. Ill-formed bytes come out as U+FFFD, the start of a character that breaks off as one (so do Rust and Hugging
/// Face), so that the output is always valid UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The characters that this id completes; often none or several. An id beyond the vocabulary (a model may be padded)
  /// adds nothing.
  std::string push(TokenId id) {
    if (id >= tokenizer_.vocabulary_size()) return {};
    pending_ += tokenizer_.token_bytes(id);
    const std::size_t whole = pending_.size() - detail::incomplete_tail(pending_);
    std::string out = replace_invalid(std::string_view(pending_).substr(0, whole));
    pending_.erase(0, whole);
    return out;
  }

  /// What is left at the end: U+FFFD for an unfinished character.
  std::string finish() { return pending_.empty() ? std::string() : (pending_.clear(), std::string("\xEF\xBF\xBD")); }

 private:
  static std::string replace_invalid(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    for (const char *p = bytes.data(), *end = p + bytes.size(); p < end;) {
      const DecodedCharacter character = decode_utf8(p, end);
      if (character.code_point != kInvalidCodePoint) {
        out.append(p, character.length);
        p += character.length;
        continue;
      }
      out += "\xEF\xBF\xBD";
      const std::string_view rest(p, static_cast<std::size_t>(end - p));
      std::size_t length = std::min<std::size_t>(rest.size(), 3);
      while (length > 1 && detail::incomplete_tail(rest.substr(0, length)) != length) --length;
      p += length;
    }
    return out;
  }

  Tokenizer tokenizer_;
  std::string pending_;
};

}  // namespace ilme::text
