/// Training of byte-level BPE: the merge list of Hugging Face's BpeTrainer, from word counts.
/// Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/merge_engine.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/word_counter.hpp>

namespace ilme::text {

struct BpeTrainerOptions {
  std::size_t vocabulary_size = 32768;  // with special tokens and the 256 bytes
  std::uint64_t min_frequency = 0;      // pairs that are rarer do not merge
  std::size_t max_token_length = 0;     // bytes; pairs of bytes aside, every token is shorter than this; 0: no limit
  std::vector<std::string> special_tokens = {};  // the first ids, in this order
  /// Called with the size of the vocabulary so far and the one aimed at, now and then.
  std::function<void(std::size_t, std::size_t)> progress = {};
};

/// Learns a vocabulary. Ids: special tokens, the 256 bytes in the order of their byte-level characters, then merges. In
/// each step the most frequent pair merges; of equally frequent ones that with the smallest (left id, right id). The
/// result depends on the counts alone.
class BpeTrainer {
 public:
  /// Throws InputError when the size leaves no room for the bytes, or a special token is empty, there twice, or a byte.
  BpeTrainer(PreTokenizer pre_tokenizer, BpeTrainerOptions options)
      : pre_tokenizer_(std::move(pre_tokenizer)), options_(std::move(options)) {
    const std::size_t least = 256 + options_.special_tokens.size();
    if (options_.vocabulary_size < least) {
      throw InputError("vocabulary size ", options_.vocabulary_size, " is too small, expected at least ", least,
                       ": 256 bytes and ", options_.special_tokens.size(), " special tokens");
    }
    if (options_.vocabulary_size - 1 > kLargestTokenId) {
      throw InputError("vocabulary size ", options_.vocabulary_size, ", expected at most ", kLargestTokenId + 1);
    }
    std::set<std::string> names;
    for (int byte = 0; byte < 256; ++byte) names.insert(to_byte_level(std::string(1, static_cast<char>(byte))));
    for (const std::string& token : options_.special_tokens) {
      if (token.empty()) throw InputError("a special token is empty");
      if (!is_valid_utf8(token)) throw InputError("special token \"", token, "\" is not valid UTF-8");
      if (!names.insert(token).second) {
        throw InputError("special token \"", token, "\" is there twice or has the name of a byte");
      }
    }
  }

  const PreTokenizer& pre_tokenizer() const noexcept { return pre_tokenizer_; }

  /// Learns from counts of pieces (see count_words). When pairs run out the vocabulary is smaller than asked for.
  TokenizerModel train(const WordCounter& words) const {
    TokenizerModel model;
    std::unordered_map<std::string, TokenId> ids;  // by the names that tokenizer.json will have
    const auto add = [&](std::string bytes, std::string name) {
      const auto [place, is_new] = ids.emplace(std::move(name), static_cast<TokenId>(model.tokens.size()));
      if (is_new) model.tokens.push_back(std::move(bytes));
      return place->second;
    };
    for (const std::string& token : options_.special_tokens) {
      model.added_tokens.push_back({token, add(token, token), true, false});
    }
    detail::MergeEngine engine(words, options_.min_frequency, options_.max_token_length, options_.vocabulary_size);
    for (const std::uint8_t byte : byte_level_alphabet()) {
      const std::string bytes(1, static_cast<char>(byte));
      engine.set_byte_id(byte, add(bytes, to_byte_level(bytes)));
    }
    engine.count_pairs();
    const std::size_t specials = options_.special_tokens.size();
    while (model.tokens.size() < options_.vocabulary_size) {
      const auto pair = engine.best_pair();
      if (!pair) break;
      const auto bytes_of =
          [&](TokenId id) -> std::string {  // a special token that is also a merge stands for its name
        return id < specials ? from_byte_level(model.tokens[id]).value_or("") : model.tokens[id];
      };
      std::string bytes = bytes_of(pair->first) + bytes_of(pair->second);
      std::string name = to_byte_level(bytes);
      const TokenId result = add(std::move(bytes), std::move(name));
      model.merges.push_back({pair->first, pair->second, result});
      engine.merge_best(result);
      if (options_.progress && model.merges.size() % 256 == 0) {
        options_.progress(model.tokens.size(), options_.vocabulary_size);
      }
    }
    if (options_.progress) options_.progress(model.tokens.size(), options_.vocabulary_size);
    model.pre_tokenizer = pre_tokenizer_;
    model.config = make_tokenizer_config(model.added_tokens);
    const std::string bos = guess_roles(model.added_tokens).bos;
    model.post_processor = make_post_processor(bos, bos.empty() ? 0 : ids.at(bos));
    return model;
  }

 private:
  PreTokenizer pre_tokenizer_;
  BpeTrainerOptions options_;
};

}  // namespace ilme::text
