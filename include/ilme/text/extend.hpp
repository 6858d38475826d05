/// Extension of a vocabulary: the merges of a byte-level BPE tokenizer are continued on text in another language.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/text/bpe_encoder.hpp>
#include <ilme/text/byte_level.hpp>
#include <ilme/text/merge_engine.hpp>
#include <ilme/text/tokenizer_model.hpp>
#include <ilme/text/word_counter.hpp>

namespace ilme::text {

struct ExtenderOptions {
  std::size_t token_count = 0;       // new tokens
  std::uint64_t min_frequency = 0;   // pairs that are rarer do not merge
  std::uint64_t min_word_count = 0;  // rarer words are left out
  std::size_t max_token_length = 0;  // bytes; every new token is shorter than this; 0: no limit
  std::size_t memory_limit = 0;      // bytes that merging may take; 0: no limit
  /// Called with the new tokens so far and those asked for, now and then.
  std::function<void(std::size_t, std::size_t)> progress = {};
};

struct Extension {
  TokenizerModel model;
  std::uint64_t tokens_before = 0, tokens_after = 0;  // of all words that were learnt from
};

/// Learns new tokens on top of a base. Words are encoded with the base, and training goes on from there: the most
/// frequent pair merges, of equally frequent ones that with the smallest ids. Ids and merges of the base stay, and its
/// merges come first; new ids follow the largest that the base uses, added tokens included. A pair that spells a token
/// of the base, or the name of an added token, is passed over.
///
/// No text gets longer: the merges of the base apply first and to the same end, as none of them takes part in a new
/// token, and each of those that follow makes two tokens one.
class BpeExtender {
 public:
  /// Throws InputError when ids run out.
  BpeExtender(TokenizerModel base, ExtenderOptions options) : base_(std::move(base)), options_(std::move(options)) {
    if (base_.tokens.size() + options_.token_count - 1 > kLargestTokenId) {
      throw InputError("a base of ", base_.tokens.size(), " tokens and ", options_.token_count,
                       " new ones, expected together at most ", kLargestTokenId + 1);
    }
  }

  /// Counts the pieces of `text` (whole lines) for `extend`, normalised and split as the base does it.
  void count(std::string_view text, WordCounter& words) const {
    count_words(base_.pre_tokenizer, text, words, base_.normalizer);
  }

  /// Learns from counts of pieces, as BpeTrainer::train. When pairs run out there are fewer new tokens.
  template <class Words>
  Extension extend(Words&& words) const {
    Extension result{base_};
    TokenizerModel& model = result.model;
    const std::size_t base_size = model.tokens.size(), goal = base_size + options_.token_count;
    model.tokens.reserve(goal);
    std::vector<std::string> names(base_size);  // of added tokens, as the bytes that a merge would have to spell
    std::vector<char> is_added(base_size, 0);
    for (const AddedToken& token : model.added_tokens) {
      names[token.id] = from_byte_level(token.content).value_or("");
      is_added[token.id] = 1;
    }
    TokenIndex known(base_size);
    for (TokenId id = 0; id < base_size; ++id) {
      const std::string& bytes = is_added[id] ? names[id] : model.tokens[id];
      if (!bytes.empty()) known.insert(bytes, id);
    }

    detail::MergeEngine engine({.min_count = options_.min_frequency,
                                .max_length = options_.max_token_length,
                                .vocabulary_size = goal,
                                .memory_limit = options_.memory_limit});
    for (TokenId id = 0; id < base_size; ++id) {
      if (!is_added[id] && !model.tokens[id].empty()) engine.set_length(id, model.tokens[id].size());
    }
    {
      const BpeEncoder encoder(base_);
      BpeEncoder::Scratch scratch;
      std::vector<TokenId> tokens;
      words.for_each([&](std::string_view word, std::uint64_t count) {
        if (count < options_.min_word_count) return;
        tokens.clear();
        encoder.encode(word, scratch, tokens);
        result.tokens_before += count * tokens.size();
        if (tokens.size() > 1) engine.add_word(tokens, count);
      });
    }
    if constexpr (!std::is_lvalue_reference_v<Words>) [[maybe_unused]]
      const Words freed = std::move(words);
    result.tokens_after = result.tokens_before;
    engine.count_pairs(/*check_length=*/true);
    while (model.tokens.size() < goal) {
      const auto pair = engine.best_pair();
      if (!pair) break;
      std::string bytes = model.tokens[pair->first] + model.tokens[pair->second];
      if (known.find(bytes) != nullptr) {
        engine.skip_best();
        continue;
      }
      const auto id = static_cast<TokenId>(model.tokens.size());
      model.tokens.push_back(std::move(bytes));
      model.merges.push_back({pair->first, pair->second, id});
      result.tokens_after -= engine.merge_best(id);
      if (options_.progress && id % 256 == 0) options_.progress(id - base_size, options_.token_count);
    }
    if (options_.progress) options_.progress(model.tokens.size() - base_size, options_.token_count);
    return result;
  }

 private:
  TokenizerModel base_;
  ExtenderOptions options_;
};

}  // namespace ilme::text
