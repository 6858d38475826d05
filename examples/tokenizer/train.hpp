/// ilme-tokenizer train.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/parallel.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/text_blocks.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tokenizer_json_writer.hpp>
#include <ilme/text/word_counter.hpp>

#include "tokenizer/support.hpp"

namespace ilme::program {

struct TrainOptions {
  std::vector<std::string> inputs;
  std::string output, pattern = "llama3", special_tokens = "llama3", field = "text";
  text::BpeTrainerOptions trainer;
  std::size_t threads = 0;
};

inline void train(TrainOptions options) {
  const auto start = std::chrono::steady_clock::now();
  options.trainer.special_tokens = text::special_token_set(options.special_tokens);
  ProgressBar learning({.label = "merging", .item_name = "tokens"});
  options.trainer.progress = [&](std::size_t size, std::size_t goal) {
    learning.set_total(static_cast<double>(goal));
    learning.update(static_cast<double>(size));
  };
  const text::BpeTrainer trainer(text::PreTokenizer::named(options.pattern), options.trainer);

  const std::size_t workers = thread_count(options.threads);
  std::vector<text::WordCounter> counters(workers);
  ProgressBar reading({.label = "counting words", .unit = ProgressUnit::bytes});
  data::TextBlocks blocks({options.inputs.begin(), options.inputs.end()}, options.field,
                          [&](std::uint64_t done) { reading.update(static_cast<double>(done)); });
  reading.set_total(static_cast<double>(blocks.bytes_total()));
  data::for_each_text(blocks, workers, [&](std::size_t worker, std::string_view piece) {
    text::count_words(trainer.pre_tokenizer(), piece, counters[worker]);
  });
  for (std::size_t i = 1; i < workers; ++i) {
    counters[0].add(counters[i]);
    counters[i] = {};
  }
  reading.clear();
  const double counted = seconds_since(start);

  const text::TokenizerModel model = trainer.train(counters[0]);
  learning.clear();
  text::save_tokenizer(model, options.output);
  const double total = seconds_since(start), megabytes = static_cast<double>(blocks.bytes_total()) / 1e6;
  if (counters[0].size() == 0) std::cerr << "the corpus is empty: only bytes and special tokens were written\n";
  if (model.tokens.size() < options.trainer.vocabulary_size) {
    std::cerr << "no pairs are left to merge: " << model.tokens.size() << " tokens instead of "
              << options.trainer.vocabulary_size << "\n";
  }
  std::cerr << concat(options.output, ": ", model.tokens.size(), " tokens from ", counters[0].size(), " words; ")
            << format_bytes(megabytes * 1e6) << " counted in " << format_duration(counted) << " ("
            << format_bytes(megabytes * 1e6 / counted) << "/s), " << model.merges.size() << " merges in "
            << format_duration(total - counted) << "\n";
}

inline void add_train_command(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  TrainOptions& o = *options;
  CLI::App* command = add_command(app, "train", "Learn a byte-level BPE vocabulary", [options] { train(*options); });
  command->add_option("--input", o.inputs, "Text or .jsonl files, also as .gz or .zst")->required();
  command->add_option("--vocab-size", o.trainer.vocabulary_size, "Tokens, with special tokens and the 256 bytes")
      ->required();
  command->add_option("--output", o.output, "Folder for tokenizer.json and tokenizer_config.json")->required();
  command->add_option("--pattern", o.pattern,
                      "How text is split: llama3, gpt2, qwen2, o200k, az or a regular expression");
  command->add_option("--special-tokens", o.special_tokens, "llama3, chatml, none or a list separated by commas");
  command->add_option("--min-frequency", o.trainer.min_frequency, "Pairs that are rarer do not merge");
  command->add_option("--max-token-length", o.trainer.max_token_length,
                      "Bytes that every token of more than two stays below; 0: no limit");
  command->add_option("--field", o.field, "Key of the text in .jsonl lines");
  add_threads(*command, o.threads);
}

}  // namespace ilme::program
