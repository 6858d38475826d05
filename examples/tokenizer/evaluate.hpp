/// ilme-tokenizer evaluate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/parallel.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/data/parallel_text.hpp>
#include <ilme/text/comparison.hpp>
#include <ilme/text/comparison_html.hpp>
#include <ilme/text/comparison_table.hpp>
#include <ilme/text/text_sample.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/named_paths.hpp"
#include "tokenizer/support.hpp"

namespace ilme::program {

struct EvaluateOptions {
  std::vector<std::string> tokenizers, texts, parallel, words;
  std::string field = "text", json, html;
  std::size_t threads = 0;
};

/// `NAME=PATH`; without a name the last part of the path is it. Every name is used once.
inline std::vector<text::NamedTokenizer> load_tokenizers(const std::vector<std::string>& arguments,
                                                         std::size_t threads) {
  const std::vector<NamedPath> named = named_paths("--tokenizer", arguments, last_part);
  std::vector<std::optional<text::Tokenizer>> loaded(named.size());
  parallel_for(loaded.size(), threads, [&](std::size_t i) { loaded[i] = text::Tokenizer::load(named[i].path); });
  std::vector<text::NamedTokenizer> tokenizers;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    tokenizers.push_back({named[i].name, std::move(*loaded[i])});
  }
  return tokenizers;
}

/// The documents of a file, or the lines of standard input; the name is that of the file, without folder and endings.
inline text::TextSample read_sample(const std::string& file, const std::string& field) {
  text::TextSample sample;
  if (file == "-") {
    sample = text::sample_of_lines("standard input", Input(file).bytes());
  } else {
    data::DocumentReader reader({file}, field);
    std::vector<std::string> documents;
    while (auto document = reader.next()) documents.push_back(std::move(*document));
    sample = text::TextSample(document_name(file), std::move(documents));
  }
  if (sample.words == 0) throw InputError(file, ": is empty, expected a text to measure on");
  return sample;
}

inline void evaluate(const EvaluateOptions& options) {
  if (options.texts.empty() && options.parallel.empty()) throw InputError("--text or --parallel is required");
  const std::vector<text::NamedTokenizer> tokenizers = load_tokenizers(options.tokenizers, options.threads);
  std::vector<text::TextSample> texts;
  for (const std::string& file : options.texts) {
    texts.push_back(read_sample(file, options.field));
    const auto same_name = [&](const text::TextSample& other) { return other.name == texts.back().name; };
    if (std::find_if(texts.begin(), texts.end() - 1, same_name) != texts.end() - 1) texts.back().name = file;
  }
  std::vector<text::ParallelText> parallel;
  for (const std::string& name : options.parallel) parallel.push_back(data::read_parallel_text(name));
  const text::Comparison comparison =
      text::compare(tokenizers, texts, parallel, options.words, {.threads = options.threads});
  std::fputs(text::comparison_table(comparison).c_str(), stdout);
  if (!options.json.empty()) write_json(options.json, text::comparison_json(comparison));
  if (!options.html.empty()) write_file(options.html, text::comparison_html(comparison));
}

inline void add_evaluate_command(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  EvaluateOptions& o = *options;
  CLI::App* command = add_command(app, "evaluate", "Compare tokenizers on texts", [options] { evaluate(*options); });
  command
      ->add_option("--tokenizer", o.tokenizers,
                   "Any number: folders, tokenizer.json or tiktoken files; the first is the one that the "
                   "page compares with")
      ->type_name("NAME=PATH")
      ->required();
  command
      ->add_option("--text", o.texts,
                   "Texts to measure on, a document a line: text or .jsonl, also .gz or .zst; - for standard input")
      ->type_name("FILE");
  command
      ->add_option("--parallel", o.parallel,
                   "Sentences in two languages: FIRST:SECOND, two files aligned line by line, or one file of two "
                   "columns between tabs (Tatoeba's four too); the premium is tokens of the first over the second")
      ->type_name("FILE");
  command->add_option("--words", o.words, "Words to show split, separated by commas")
      ->delimiter(',')
      ->type_name("WORD");
  command->add_option("--field", o.field, "Key of the text in .jsonl lines");
  command->add_option("--json", o.json, "File for all figures as JSON; shares are between 0 and 1")->type_name("FILE");
  command->add_option("--html", o.html, "File for a page with charts and coloured splits; needs nothing else to show")
      ->type_name("FILE");
  add_threads(*command, o.threads);
  command->footer(
      "Columns of the table (the page explains them with their sources):\n"
      "  tokens/word     all tokens over the words between whitespace (fertility)\n"
      "  words cut       running words that two or more tokens share, punctuation around them left aside\n"
      "  STRR            distinct words that are a single token\n"
      "  Renyi eff.      evenness of the token frequencies, order 2.5, over the tokens that occur\n"
      "  cut chars       tokens that begin or end inside a character\n"
      "  words in 128k   words that a context of 131,072 tokens holds\n"
      "  MB/s            one thread with an empty word cache / all threads with a full one\n\n"
      "Example:\n"
      "  ilme-tokenizer evaluate --tokenizer base=Llama-3.2-1B mine=tokenizer --text az.txt en.txt \\\n"
      "    --parallel flores/az.txt:flores/en.txt --words kitablardan,gələcəyəm --html comparison.html");
}

}  // namespace ilme::program
