/// How well a tokenizer fits a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/parallel.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

/// Words between whitespace (`\s`).
inline std::uint64_t count_whitespace_words(std::string_view text) {
  std::uint64_t words = 0;
  bool inside = false;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const DecodedCharacter character = decode_utf8(p, end);
    const bool blank = char_classes()[character.code_point] >= CharClass::space;
    words += !blank && !inside ? 1 : 0;
    inside = !blank;
    p += character.length;
  }
  return words;
}

/// Counts over one text.
struct TextMetrics {
  std::uint64_t bytes = 0, words = 0, tokens = 0;

  /// Fertility (Rust et al. 2021, "How Good is Your Tokenizer?"), over whitespace words; tokens of the whitespace
  /// count.
  double tokens_per_word() const { return words > 0 ? static_cast<double>(tokens) / static_cast<double>(words) : 0.0; }
  double bytes_per_token() const { return tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0; }
};

/// Encodes each line of `text`, which is a document, without its newline (special tokens as text) and counts.
inline TextMetrics measure(const Tokenizer& tokenizer, std::string_view text, std::size_t threads = 1) {
  constexpr std::size_t kStretch = std::size_t{1} << 18;
  std::vector<std::string_view> stretches;  // of whole lines
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n', std::min(kStretch, text.size()) - 1), text.size() - 1) + 1;
    stretches.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  std::vector<TextMetrics> parts(stretches.size());
  parallel_for(stretches.size(), threads, [&](std::size_t i) {
    for (std::string_view rest = stretches[i]; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      parts[i].bytes += line.size();
      parts[i].words += count_whitespace_words(line);
      parts[i].tokens += tokenizer.encode(line).size();
    }
  });
  TextMetrics sum;
  for (const TextMetrics& part : parts) {
    sum.bytes += part.bytes;
    sum.words += part.words;
    sum.tokens += part.tokens;
  }
  return sum;
}

/// The bytes of the tokens that `word` becomes inside a sentence, after a space; the space itself is left out of them.
inline std::vector<std::string> split_word(const Tokenizer& tokenizer, std::string_view word) {
  std::vector<std::string> parts;
  for (const TokenId id : tokenizer.encode(" " + std::string(word))) parts.emplace_back(tokenizer.token_bytes(id));
  if (!parts.empty() && parts[0].starts_with(' ')) parts[0].erase(0, 1);
  if (!parts.empty() && parts[0].empty()) parts.erase(parts.begin());
  return parts;
}

/// `parts` for people: "kitab|lar|dan"; bytes of a character that is cut as <C9>.
inline std::string show_split(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += '|';
    for (const char *p = part.data(), *end = p + part.size(); p < end;) {
      const DecodedCharacter character = decode_utf8(p, end);
      if (character.code_point == kInvalidCodePoint || character.code_point < 0x20) {
        const auto byte = static_cast<unsigned char>(*p);
        out += {'<', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15], '>'};
      } else {
        out.append(p, character.length);
      }
      p += character.length;
    }
  }
  return out;
}

}  // namespace ilme::text
