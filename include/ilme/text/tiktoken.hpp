/// Reads tiktoken files: a line for each token, base64 of its bytes and its rank, which is its id.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/text/bpe_encoder.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

namespace detail {

/// RFC 4648 base64 with its padding and nothing else, or nothing.
inline std::optional<std::string> decode_base64(std::string_view text) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool padded = i + padding >= text.size();
    const std::size_t digit = padded ? 0 : kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift & 0xFF);
      bits = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace detail

/// The model of a tiktoken file, which has no special tokens and splits by `pre_tokenizer`. A piece that is a token is
/// that token; else the pair with the smallest rank merges first, the leftmost of equal ones. Throws InputError that
/// names the file and the line when a line is not base64 and a rank, or a token or a rank comes twice, and the byte
/// when one has no token.
inline TokenizerModel read_tiktoken(const std::filesystem::path& path, PreTokenizer pre_tokenizer) {
  const std::string text = read_file(path);
  TokenizerModel model;
  model.rank_is_result = model.ignore_merges = true;
  model.pre_tokenizer = std::move(pre_tokenizer);
  std::vector<std::size_t> lines;  // by rank
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto fail = [&](const auto&... found) {
      throw InputError(path.string(), " line ", number + 1, ": ", found...,
                       ", expected the base64 of a token, a space and its rank");
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) fail("there is no rank");
    std::optional<std::string> bytes = detail::decode_base64(line.substr(0, space));
    if (!bytes) fail("\"", line.substr(0, std::min<std::size_t>(space, 40)), "\" is not base64");
    const std::string_view digits = line.substr(space + 1);
    TokenId rank = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error != std::errc() || rest != digits.data() + digits.size() || rank > kLargestTokenId) {
      fail("the rank is \"", digits.substr(0, 40), "\"");
    }
    if (rank >= model.tokens.size()) {
      model.tokens.resize(std::size_t{rank} + 1);
      lines.resize(model.tokens.size());
    }
    if (!model.tokens[rank].empty()) fail("rank ", rank, " is there twice");
    model.tokens[rank] = *std::move(bytes);
    lines[rank] = number + 1;
  }
  if (model.tokens.empty()) throw InputError(path.string(), ": no tokens in it");

  TokenIndex index(model.tokens.size());
  for (TokenId id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].empty() || index.insert(model.tokens[id], id)) continue;
    throw InputError(path.string(), " line ", lines[id], ": the token of line ", lines[*index.find(model.tokens[id])],
                     " again, expected every token once");
  }
  for (int byte = 0; byte < 256; ++byte) {  // tiktoken has no other way to write a byte
    if (index.find(std::string(1, static_cast<char>(byte))) != nullptr) continue;
    throw InputError(path.string(), ": no token for the byte 0x", "0123456789ABCDEF"[byte >> 4],
                     "0123456789ABCDEF"[byte & 15], ", expected all 256; is the file whole?");
  }
  // Every way to put a token together from two others, the halves with small ids first as Hugging Face's converter
  // does.
  for (TokenId id = 0; id < model.tokens.size(); ++id) {
    const std::string_view token = model.tokens[id];
    const std::size_t first = model.merges.size();
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const TokenId *left = index.find(token.substr(0, cut)), *right = index.find(token.substr(cut));
      if (left != nullptr && right != nullptr) model.merges.push_back({*left, *right, id});
    }
    std::sort(model.merges.begin() + static_cast<std::ptrdiff_t>(first), model.merges.end(),
              [](const Merge& a, const Merge& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  }
  return model;
}

}  // namespace ilme::text
