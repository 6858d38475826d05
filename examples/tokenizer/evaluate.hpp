/// ilme-tokenizer evaluate.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/metrics.hpp>
#include <ilme/text/tokenizer.hpp>

#include "tokenizer/support.hpp"

namespace ilme::program {

struct EvaluateOptions {
  std::vector<std::string> tokenizers, words;
  std::string text, json;
  std::size_t threads = 0;
};

inline void evaluate(const EvaluateOptions& options) {
  const Input input(options.text);
  if (input.bytes().empty()) throw InputError(options.text, ": is empty, expected a text to measure on");
  Json results = Json::array();
  std::vector<text::Tokenizer> tokenizers;
  std::printf("%-20s %10s %12s %12s %12s %10s %10s\n", "tokenizer", "vocabulary", "tokens", "tokens/word",
              "bytes/token", "to first", "MB/s");
  for (const std::string& argument : options.tokenizers) {
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    tokenizers.push_back(text::Tokenizer::load(equals == std::string::npos ? name : argument.substr(equals + 1)));
    const auto start = std::chrono::steady_clock::now();
    const text::TextMetrics metrics = text::measure(tokenizers.back(), input.bytes(), options.threads);
    const double rate = static_cast<double>(metrics.bytes) / 1e6 / seconds_since(start);
    Json result = {{"name", name},
                   {"vocabulary_size", tokenizers.back().vocabulary_size()},
                   {"bytes", metrics.bytes},
                   {"words", metrics.words},
                   {"tokens", metrics.tokens},
                   {"tokens_per_word", metrics.tokens_per_word()},
                   {"bytes_per_token", metrics.bytes_per_token()}};
    const auto first = results.empty() ? metrics.tokens : results[0].at("tokens").get<std::uint64_t>();
    const double ratio = first > 0 ? static_cast<double>(metrics.tokens) / static_cast<double>(first) : 0.0;
    result["tokens_to_first"] = ratio;
    result["encode_megabytes_per_second"] = rate;
    for (const std::string& word : options.words) {
      result["words_split"][word] = text::show_split(text::split_word(tokenizers.back(), word));
    }
    results.push_back(result);
    std::printf("%-20s %10zu %12llu %12.3f %12.3f %10.3f %10.1f\n", name.c_str(), tokenizers.back().vocabulary_size(),
                static_cast<unsigned long long>(metrics.tokens), metrics.tokens_per_word(), metrics.bytes_per_token(),
                ratio, rate);
  }
  for (const std::string& word : options.words) {
    std::printf("\n%s\n", word.c_str());
    for (std::size_t i = 0; i < tokenizers.size(); ++i) {
      const auto parts = text::split_word(tokenizers[i], word);
      std::printf("  %-18s %2zu  %s\n", results[i].at("name").get<std::string>().c_str(), parts.size(),
                  text::show_split(parts).c_str());
    }
  }
  if (!options.json.empty()) write_json(options.json, results);
}

inline void add_evaluate_command(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  EvaluateOptions& o = *options;
  CLI::App* command = add_command(app, "evaluate", "Compare tokenizers on a text", [options] { evaluate(*options); });
  command->add_option("--tokenizer", o.tokenizers, "NAME=PATH of a folder, tokenizer.json or tiktoken file")
      ->required();
  command->add_option("--text", o.text, "File of text; - for standard input")->required();
  command->add_option("--words", o.words, "Words to show split, separated by commas")->delimiter(',');
  command->add_option("--json", o.json, "File for the figures as JSON");
  add_threads(*command, o.threads);
}

}  // namespace ilme::program
