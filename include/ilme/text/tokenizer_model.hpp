/// What a byte-level BPE tokenizer consists of, as plain data: readers make it, the encoder and the writers use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/text/hash.hpp>
#include <ilme/text/normalizer.hpp>
#include <ilme/text/pretokenizer.hpp>

namespace ilme::text {

using TokenId = std::uint32_t;

/// Ids above this are refused: a table is kept by id.
inline constexpr TokenId kLargestTokenId = (1U << 24) - 1;

/// Two neighbouring tokens that become one.
struct Merge {
  TokenId left, right, result;
  friend bool operator==(const Merge&, const Merge&) = default;
};

/// A token that is found in the text as it stands, before pre-tokenisation.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = true;       // a control token: `Special::text` treats it as ordinary text
  bool normalized = false;   // sought, normalised too, in the normalised text that those with `false` leave
  bool single_word = false;  // not found next to a word character
  bool lstrip = false;       // takes the whitespace before it along
  bool rstrip = false;       // and that after it
};

struct TokenizerModel {
  std::vector<std::string> tokens;  // by id: raw bytes; the content of an added token; empty where an id is not used
  std::vector<Merge> merges;        // the first is the most urgent
  bool rank_is_result = false;      // tiktoken: the most urgent merge is the one with the smallest result
  bool ignore_merges = false;       // a whole piece that is a token is that token, whatever the merges say
  Normalizer normalizer;            // of the text between added tokens
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens;
  Json post_processor;  // as in tokenizer.json; encoding never applies it
  Json config;          // tokenizer_config.json, null when there is none
};

/// A hash of all that ids depend on: vocabulary, merges, normaliser, splits, added tokens. The form of the file plays
/// no part.
inline std::string fingerprint(const TokenizerModel& model) {
  Fingerprint print;
  print.add(model.tokens.size());
  for (const std::string& token : model.tokens) print.add(token);
  print.add(std::uint64_t{model.rank_is_result} << 1 | std::uint64_t{model.ignore_merges});
  print.add(model.merges.size());
  for (const Merge& merge : model.merges) {
    print.add(std::uint64_t{merge.left} << 32 | merge.right);
    print.add(std::uint64_t{merge.result});
  }
  if (!model.normalizer.empty()) print.add(model.normalizer.json().dump());
  for (const std::string& step : model.pre_tokenizer.signature()) print.add(step);
  for (const AddedToken& token : model.added_tokens) {
    print.add(token.content);
    std::uint64_t bits = token.id;
    for (const bool flag : {token.special, token.normalized, token.single_word, token.lstrip, token.rstrip}) {
      bits = bits << 1 | std::uint64_t{flag};
    }
    print.add(bits);
  }
  return print.hex();
}

}  // namespace ilme::text
