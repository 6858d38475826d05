/// Training of byte-level BPE: the merge list of Hugging Face's BpeTrainer, from word counts.
/// Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/bpe_encoder.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/merge_engine.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/word_counter.hpp>

namespace ilme::text {

struct BpeTrainerOptions {
  std::size_t vocabulary_size = 32768;  // with special tokens and the 256 bytes
  std::uint64_t min_frequency = 0;      // pairs that are rarer do not merge
  std::uint64_t min_word_count = 0;     // rarer words are left out, which Hugging Face cannot do: it saves memory
  std::size_t max_token_length = 0;     // bytes; pairs of bytes aside, every token is shorter than this; 0: no limit
  std::vector<std::string> special_tokens = {};  // the first ids, in this order
  Normalizer normalizer = {};                    // goes into the model; count_words must be given the same
  std::size_t memory_limit = 0;                  // bytes that merging may take; 0: no limit
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
  const Normalizer& normalizer() const noexcept { return options_.normalizer; }

  /// Counts the pieces of `text` (whole lines) for `train`.
  void count(std::string_view text, WordCounter& words) const {
    count_words(pre_tokenizer_, text, words, options_.normalizer);
  }

  /// Learns from counts of pieces: a WordCounter or whatever else calls `visit(word, count)` in its `for_each`; one
  /// that is moved in is freed early. When pairs run out the vocabulary is smaller than asked for. Throws InputError
  /// when `memory_limit` does not suffice.
  template <class Words>
  TokenizerModel train(Words&& words) const {
    TokenizerModel model;
    model.tokens.reserve(options_.vocabulary_size);  // the index keeps views of them
    TokenIndex ids(options_.vocabulary_size);        // by bytes
    const std::size_t specials = options_.special_tokens.size();
    std::vector<std::string> special_bytes;  // what those that could be merges spell; "" for the others
    special_bytes.reserve(specials);
    for (const std::string& token : options_.special_tokens) {
      const auto id = static_cast<TokenId>(model.tokens.size());
      model.tokens.push_back(token);
      model.added_tokens.push_back({token, id, true, false});
      special_bytes.push_back(from_byte_level(token).value_or(""));
      if (!special_bytes.back().empty()) ids.insert(special_bytes.back(), id);
    }
    const auto add = [&](std::string bytes) {
      if (const TokenId* known = ids.find(bytes)) return *known;
      const auto id = static_cast<TokenId>(model.tokens.size());
      model.tokens.push_back(std::move(bytes));
      ids.insert(model.tokens.back(), id);
      return id;
    };
    std::array<TokenId, 256> byte_ids;
    for (const std::uint8_t byte : byte_level_alphabet()) byte_ids[byte] = add(std::string(1, static_cast<char>(byte)));

    detail::MergeEngine engine({.min_count = options_.min_frequency,
                                .max_length = options_.max_token_length,
                                .vocabulary_size = options_.vocabulary_size,
                                .memory_limit = options_.memory_limit});
    std::vector<TokenId> tokens;
    words.for_each([&](std::string_view word, std::uint64_t count) {
      if (word.size() < 2 || count < options_.min_word_count) return;
      tokens.clear();
      for (const char c : word) tokens.push_back(byte_ids[static_cast<unsigned char>(c)]);
      engine.add_word(tokens, count);
    });
    if constexpr (!std::is_lvalue_reference_v<Words>) [[maybe_unused]]
      const Words freed = std::move(words);
    engine.count_pairs(/*check_length=*/false);
    while (model.tokens.size() < options_.vocabulary_size) {
      const auto pair = engine.best_pair();
      if (!pair) break;
      const auto bytes_of = [&](TokenId id) -> const std::string& {
        return id < specials ? special_bytes[id] : model.tokens[id];
      };
      const TokenId result = add(bytes_of(pair->first) + bytes_of(pair->second));
      model.merges.push_back({pair->first, pair->second, result});
      engine.merge_best(result);
      if (options_.progress && model.merges.size() % 256 == 0) {
        options_.progress(model.tokens.size(), options_.vocabulary_size);
      }
    }
    if (options_.progress) options_.progress(model.tokens.size(), options_.vocabulary_size);
    model.pre_tokenizer = pre_tokenizer_;
    model.normalizer = options_.normalizer;
    model.config = make_tokenizer_config(model.added_tokens);
    const std::string bos = guess_roles(model.added_tokens).bos;
    const auto bos_token = std::find(model.tokens.begin(), model.tokens.end(), bos);
    model.post_processor =
        make_post_processor(bos, bos.empty() ? 0 : static_cast<TokenId>(bos_token - model.tokens.begin()));
    return model;
  }

 private:
  PreTokenizer pre_tokenizer_;
  BpeTrainerOptions options_;
};

}  // namespace ilme::text
