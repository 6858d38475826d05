/// ilme-tokenizer train.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <ilme/core/progress.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tokenizer_json_writer.hpp>

#include "tokenizer/corpus.hpp"
#include "tokenizer/support.hpp"

namespace ilme::program {

struct TrainOptions {
  CorpusOptions corpus;
  std::string output, pattern = "llama3", normalizer = "none", special_tokens = "llama3";
  text::BpeTrainerOptions trainer;
};

inline void train(TrainOptions options) {
  const auto start = std::chrono::steady_clock::now();
  const MemoryPlan plan = plan_memory(options.corpus, options.trainer.vocabulary_size);
  options.trainer.memory_limit = plan.merging;
  options.trainer.special_tokens = text::special_token_set(options.special_tokens);
  options.trainer.normalizer = text::Normalizer::named(options.normalizer);
  std::unique_ptr<ProgressBar> learning;
  options.trainer.progress = [&](std::size_t size, std::size_t goal) {
    if (!learning) {
      learning = std::make_unique<ProgressBar>(ProgressBar::Options{.label = "merging",
                                                                    .item_name = "tokens",
                                                                    .total = static_cast<double>(goal),
                                                                    .already_done = static_cast<double>(size)});
    }
    learning->update(static_cast<double>(size));
  };
  const text::BpeTrainer trainer(text::PreTokenizer::named(options.pattern), options.trainer);

  std::uint64_t bytes = 0;
  std::size_t distinct = 0;
  text::CorpusWords words =
      count_corpus(options.corpus, plan, options.output, bytes,
                   [&](std::string_view text, text::WordCounter& counter) { trainer.count(text, counter); });
  const std::size_t spills = words.spills();
  const double counted = seconds_since(start);
  const text::TokenizerModel model = trainer.train(TalliedWords{std::move(words), &distinct});
  learning.reset();
  text::save_tokenizer(model, options.output);
  const double merged = seconds_since(start) - counted;
  if (distinct == 0) std::cerr << "the corpus is empty: only bytes and special tokens were written\n";
  if (model.tokens.size() < options.trainer.vocabulary_size) {
    std::cerr << "no pairs are left to merge: " << model.tokens.size() << " tokens instead of "
              << options.trainer.vocabulary_size << "\n";
  }
  std::cerr << concat(options.output, ": ", model.tokens.size(), " tokens from ", distinct, " words; ")
            << format_bytes(static_cast<double>(bytes)) << " counted in " << format_duration(counted) << " ("
            << format_bytes(static_cast<double>(bytes) / counted) << "/s"
            << (spills > 0 ? concat(", ", spills, " times to disk") : "") << "), " << model.merges.size()
            << " merges in " << format_duration(merged) << "\n";
}

inline void add_train_command(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  TrainOptions& o = *options;
  CLI::App* command = add_command(app, "train", "Learn a byte-level BPE vocabulary", [options] { train(*options); });
  add_corpus_options(*command, o.corpus);
  command->add_option("--vocab-size", o.trainer.vocabulary_size, "Tokens, with special tokens and the 256 bytes")
      ->required();
  command->add_option("--output", o.output, "Folder for tokenizer.json and tokenizer_config.json")->required();
  command->add_option("--pattern", o.pattern,
                      "How text is split: llama3, gpt2, qwen2, o200k, az or a regular expression");
  command->add_option("--normalizer", o.normalizer,
                      "What happens to text first: none, nfc, nfd, nfkc, nfkd, az or az-lower");
  command->add_option("--special-tokens", o.special_tokens, "llama3, chatml, none or a list separated by commas");
  command->add_option("--min-frequency", o.trainer.min_frequency, "Pairs that are rarer do not merge");
  command->add_option("--min-word-count", o.trainer.min_word_count,
                      "Words that are rarer are left out: less memory, but no longer Hugging Face's merges; 0: none");
  command->add_option("--max-token-length", o.trainer.max_token_length,
                      "Bytes that every token of more than two stays below; 0: no limit");
}

}  // namespace ilme::program
