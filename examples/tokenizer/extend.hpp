/// ilme-tokenizer extend.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/text/extend.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/words.hpp>

#include "tokenizer/corpus.hpp"
#include "tokenizer/support.hpp"

namespace ilme::program {

struct ExtendOptions {
  CorpusOptions corpus;
  std::string base, pattern = "llama3", output, json;
  std::vector<std::string> report_texts;
  text::ExtenderOptions extender;
};

/// Prints, and gives as JSON, how many tokens `name` takes before and after, and for each of its `words`.
inline Json report_change(const std::string& name, std::uint64_t before, std::uint64_t after, std::uint64_t words) {
  Json row = {{"text", name}, {"tokens_before", before}, {"tokens_after", after}};
  const double change = before > 0 ? 100.0 * (static_cast<double>(after) / static_cast<double>(before) - 1.0) : 0.0;
  std::cerr << concat(name, ": ", before, " tokens before, ", after, " after (")
            << detail::printed("%+.2f%%%s", change, ")");
  if (words > 0) {
    const auto per_word = [&](std::uint64_t tokens) {
      return static_cast<double>(tokens) / static_cast<double>(words);
    };
    row["words"] = words;
    row["tokens_per_word_before"] = per_word(before);
    row["tokens_per_word_after"] = per_word(after);
    std::cerr << detail::printed("; a word %.3f%s", per_word(before), " before, ")
              << detail::printed("%.3f%s", per_word(after), " after");
  }
  std::cerr << "\n";
  return row;
}

inline void extend(ExtendOptions options) {
  const auto start = std::chrono::steady_clock::now();
  const text::Tokenizer base = text::Tokenizer::load(options.base, options.pattern);
  for (const std::string& file : options.report_texts) Input{file};  // missing ones are named before the work
  if (base.model().added_tokens.empty()) {
    std::cerr << options.base << " has no special tokens, as a bare tiktoken file: if its model has some, behind the "
              << base.vocabulary_size() << " tokens here, extend the folder with its tokenizer.json instead\n";
  }
  const MemoryPlan plan = plan_memory(options.corpus, 2 * base.vocabulary_size() + options.extender.token_count);
  options.extender.memory_limit = plan.merging;
  std::unique_ptr<ProgressBar> learning;
  options.extender.progress = [&](std::size_t count, std::size_t goal) {
    if (!learning) {
      learning = std::make_unique<ProgressBar>(
          ProgressBar::Options{.label = "merging", .item_name = "tokens", .total = static_cast<double>(goal)});
    }
    learning->update(static_cast<double>(count));
  };
  text::TokenizerModel model = base.model();
  if (model.config.is_null()) model.config = text::make_tokenizer_config(model.added_tokens);
  const text::BpeExtender extender(std::move(model), options.extender);
  std::uint64_t bytes = 0;
  std::size_t distinct = 0;
  text::CorpusWords words =
      count_corpus(options.corpus, plan, options.output, bytes,
                   [&](std::string_view text, text::WordCounter& counter) { extender.count(text, counter); });
  const double counted = seconds_since(start);
  text::Extension extension = extender.extend(TalliedWords{std::move(words), &distinct});
  learning.reset();
  text::save_tokenizer(extension.model, options.output);
  const std::size_t added = extension.model.tokens.size() - base.vocabulary_size();
  if (added < options.extender.token_count) {
    std::cerr << "no pairs are left to merge: " << added << " new tokens instead of " << options.extender.token_count
              << "\n";
  }
  std::cerr << concat(options.output, ": ", base.vocabulary_size(), " tokens and ", added, " new ones from ", distinct,
                      " words; ")
            << format_bytes(static_cast<double>(bytes)) << " counted in " << format_duration(counted) << ", merged in "
            << format_duration(seconds_since(start) - counted) << "\n";
  Json report = {{"base", options.base}, {"base_tokens", base.vocabulary_size()}, {"new_tokens", added}};
  report["texts"] =
      Json::array({report_change("what was learnt from", extension.tokens_before, extension.tokens_after, 0)});
  const text::Tokenizer extended(std::move(extension.model));
  for (const std::string& file : options.report_texts) {
    const Input input(file);
    const auto tokens = [&](const text::Tokenizer& tokenizer) {
      return tokenizer.encode(input.bytes(), text::Special::text, options.corpus.threads).size();
    };
    report["texts"].push_back(
        report_change(file, tokens(base), tokens(extended), text::count_whitespace_words(input.bytes())));
  }
  if (!options.json.empty()) write_json(options.json, report);
}

inline void add_extend_command(CLI::App& app) {
  auto options = std::make_shared<ExtendOptions>();
  ExtendOptions& o = *options;
  CLI::App* command = add_command(app, "extend", "Add tokens learnt from text to a tokenizer, whose ids stay",
                                  [options] { extend(*options); });
  command->add_option("--base", o.base, "The tokenizer: a folder, a tokenizer.json or a tiktoken file")->required();
  command->add_option("--pattern", o.pattern,
                      "How a tiktoken file splits: llama3, gpt2, qwen2, o200k, az or a regular expression");
  add_corpus_options(*command, o.corpus);
  command->add_option("--add", o.extender.token_count, "New tokens")->required()->check(CLI::PositiveNumber);
  command->add_option("--output", o.output, "Folder for tokenizer.json and tokenizer_config.json")->required();
  command->add_option("--min-frequency", o.extender.min_frequency, "Pairs that are rarer do not merge");
  command->add_option("--min-word-count", o.extender.min_word_count, "Words that are rarer are left out; 0: none");
  command->add_option("--max-token-length", o.extender.max_token_length,
                      "Bytes that every new token stays below; 0: no limit");
  command->add_option("--report-text", o.report_texts, "Texts (another language's, too) whose change is reported");
  command->add_option("--json", o.json, "File for the report");
}

}  // namespace ilme::program
