/// A tokenizer trained on a dozen Azerbaijani words, for tests that need any.
#pragma once

#include <string>
#include <string_view>

#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::test {

inline constexpr std::string_view kSmallWords[] = {"qaz",  "qız",  "dəniz", "dağ",  "ana", "ata",
                                                   "nənə", "baba", "söz",   "üzüm", "iş",  "ışıq"};

/// Counts of kSmallWords, each seen three times.
inline text::WordCounter small_counts() {
  text::WordCounter words;
  for (const std::string_view word : kSmallWords) words.add(word, 3);
  return words;
}

/// 33 merges after the special tokens of a set (see special_token_set) and the bytes.
inline text::TokenizerModel small_model(const std::string& special_tokens, const std::string& pattern = "llama3") {
  text::BpeTrainerOptions options;
  options.special_tokens = text::special_token_set(special_tokens);
  options.vocabulary_size = 256 + options.special_tokens.size() + 33;
  return text::BpeTrainer(text::PreTokenizer::named(pattern), options).train(small_counts());
}

inline text::Tokenizer small_tokenizer(const std::string& special_tokens, const std::string& pattern = "llama3") {
  return text::Tokenizer(small_model(special_tokens, pattern));
}

}  // namespace ilme::test
