/// ilme-tokenizer: trains a byte-level BPE tokenizer, encodes and decodes with one, and compares several.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/memory_map.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/text_blocks.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/metrics.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"

namespace {

using namespace ilme;

struct Options {
  std::vector<std::string> inputs, tokenizers, words;
  std::string input, output, tokenizer, text, json, pattern = "llama3", special_tokens = "llama3", field = "text",
                                                    special = "text";
  text::BpeTrainerOptions trainer;
  std::size_t threads = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The bytes of a file, or of standard input for "-".
class Input {
 public:
  explicit Input(const std::string& name) {
    if (name == "-") {
      text_.assign(std::istreambuf_iterator<char>(std::cin), {});
    } else {
      map_ = MemoryMap(name);
    }
  }
  std::string_view bytes() const { return text_.empty() ? map_.text() : std::string_view(text_); }

 private:
  std::string text_;
  MemoryMap map_;
};

/// To standard output for "-"; straight into a device or pipe; else a file that appears as a whole.
void write_output(const std::string& name, std::string_view bytes) {
  if (name == "-") {
    std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  } else if (std::filesystem::is_character_file(name) || std::filesystem::is_fifo(name)) {
    std::ofstream out(name, std::ios::binary);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
      throw RunError(name, ": cannot write ", bytes.size(), " bytes");
    }
  } else {
    write_file(name, bytes);
  }
}

bool is_binary(const std::string& name) { return name.ends_with(".bin"); }

void train(Options options) {
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

void encode(const Options& options) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.tokenizer, options.pattern);
  const Input input(options.input);
  const text::Special special = options.special == "allow" ? text::Special::allow : text::Special::text;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<text::TokenId> ids = tokenizer.encode(input.bytes(), special, options.threads);
  const double seconds = seconds_since(start);
  std::string out;
  if (is_binary(options.output)) {
    for (const text::TokenId id : ids) {
      for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(id >> shift & 0xFF);
    }
  } else {
    for (const text::TokenId id : ids) out += std::to_string(id) + ' ';
    if (!out.empty()) out.back() = '\n';
  }
  write_output(options.output, out);
  const auto bytes = static_cast<double>(input.bytes().size());
  std::cerr << format_bytes(bytes) << " to " << ids.size() << " ids in " << format_duration(seconds) << " ("
            << format_bytes(bytes / seconds) << "/s)\n";
}

std::vector<text::TokenId> read_ids(const std::string& name) {
  const Input input(name);
  const std::string_view bytes = input.bytes();
  std::vector<text::TokenId> ids;
  if (is_binary(name)) {
    if (bytes.size() % 4 != 0) throw InputError(name, ": ", bytes.size(), " bytes, expected a multiple of 4");
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      text::TokenId id = 0;
      for (std::size_t j = 0; j < 4; ++j) id |= text::TokenId{static_cast<unsigned char>(bytes[i + j])} << (8 * j);
      ids.push_back(id);
    }
    return ids;
  }
  for (std::size_t i = bytes.find_first_not_of(" \t\r\n"); i < bytes.size();) {
    const std::size_t end = std::min(bytes.find_first_of(" \t\r\n", i), bytes.size());
    const char *first = bytes.data() + i, *last = bytes.data() + end;
    text::TokenId id = 0;
    if (const auto [rest, error] = std::from_chars(first, last, id); error != std::errc() || rest != last) {
      throw InputError(name, ": \"", bytes.substr(i, std::min<std::size_t>(end - i, 40)), "\" at byte ", i,
                       ", expected a token id");
    }
    ids.push_back(id);
    i = std::min(bytes.find_first_not_of(" \t\r\n", end), bytes.size());
  }
  return ids;
}

void decode(const Options& options) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.tokenizer, options.pattern);
  const std::vector<text::TokenId> ids = read_ids(options.input);
  const auto start = std::chrono::steady_clock::now();
  const std::string bytes = tokenizer.decode(ids);
  const double seconds = seconds_since(start);
  write_output(options.output, bytes);
  const auto size = static_cast<double>(bytes.size());
  std::cerr << ids.size() << " ids to " << format_bytes(size) << " in " << format_duration(seconds) << " ("
            << format_bytes(size / seconds) << "/s)\n";
}

void evaluate(const Options& options) {
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

std::function<void()> set_up(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  app.require_subcommand(1);
  const auto command = [&](const char* name, const char* description, void (*run)(const Options&)) {
    CLI::App* sub = app.add_subcommand(name, description);
    sub->callback([options, run] { run(*options); });
    return sub;
  };
  const auto threads = [&](CLI::App* sub) {
    sub->add_option("--threads", o.threads, "Threads; 0: all that there are");
  };
  const auto pattern = [&](CLI::App* sub, const char* what) { sub->add_option("--pattern", o.pattern, what); };
  const auto files = [&](CLI::App* sub, const char* input, const char* output) {
    sub->add_option("--tokenizer", o.tokenizer, "Folder, tokenizer.json or tiktoken file")->required();
    sub->add_option("--input", o.input, input)->required();
    sub->add_option("--output", o.output, output)->required();
    pattern(sub, "How a tiktoken file splits text: llama3, gpt2, qwen2 or a regular expression");
  };

  CLI::App* sub = command("train", "Learn a byte-level BPE vocabulary", [](const Options& given) { train(given); });
  sub->add_option("--input", o.inputs, "Text or .jsonl files, also as .gz or .zst")->required();
  sub->add_option("--vocab-size", o.trainer.vocabulary_size, "Tokens, with special tokens and the 256 bytes")
      ->required();
  sub->add_option("--output", o.output, "Folder for tokenizer.json and tokenizer_config.json")->required();
  pattern(sub, "How text is split: llama3, gpt2, qwen2 or a regular expression");
  sub->add_option("--special-tokens", o.special_tokens, "llama3, chatml, none or a list separated by commas");
  sub->add_option("--min-frequency", o.trainer.min_frequency, "Pairs that are rarer do not merge");
  sub->add_option("--max-token-length", o.trainer.max_token_length,
                  "Bytes that every token of more than two stays below; 0: no limit");
  sub->add_option("--field", o.field, "Key of the text in .jsonl lines");
  threads(sub);

  sub = command("encode", "Turn text into ids, without a beginning-of-text token", encode);
  files(sub, "File that is one text; - for standard input", "File; .bin: little-endian u32, else numbers; - to print");
  sub->add_option("--special", o.special, "What names of special tokens in the text are: text, or allow: the tokens")
      ->type_name("NAME")
      ->check(CLI::IsMember({"text", "allow"}));
  threads(sub);

  sub = command("decode", "Turn ids into text", decode);
  files(sub, "File of ids; .bin: little-endian u32, else numbers; - for standard input", "File of text; - to print");

  sub = command("evaluate", "Compare tokenizers on a text", evaluate);
  sub->add_option("--tokenizer", o.tokenizers, "NAME=PATH of a folder, tokenizer.json or tiktoken file")->required();
  sub->add_option("--text", o.text, "File of text; - for standard input")->required();
  sub->add_option("--words", o.words, "Words to show split, separated by commas")->delimiter(',');
  sub->add_option("--json", o.json, "File for the figures as JSON");
  threads(sub);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return ilme::run_program(argc, argv, "ilme-tokenizer",
                           "Train a byte-level BPE tokenizer, encode and decode with it, compare tokenizers.", set_up);
}
