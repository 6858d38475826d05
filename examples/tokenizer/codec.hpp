/// ilme-tokenizer encode and decode.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/memory_size.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/text/tokenizer.hpp>

#include "tokenizer/support.hpp"

namespace ilme::program {

struct CodecOptions {
  std::string tokenizer, input, output, pattern = "llama3", special = "text", cache_size = "32MiB";
  std::size_t threads = 0;
};

inline void encode(const CodecOptions& options) {
  const text::Tokenizer tokenizer =
      text::Tokenizer::load(options.tokenizer, options.pattern, parse_memory_size(options.cache_size, "--cache-size"));
  const Input input(options.input);
  const text::Special special = options.special == "allow" ? text::Special::allow : text::Special::text;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<text::TokenId> ids = tokenizer.encode(input.bytes(), special, options.threads);
  const double seconds = seconds_since(start);
  std::string out;
  if (is_binary(options.output)) {
    static_assert(std::endian::native == std::endian::little);
    out.assign(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0]));
  } else {
    for (const text::TokenId id : ids) out += std::to_string(id) + ' ';
    if (!out.empty()) out.back() = '\n';
  }
  write_output(options.output, out);
  const auto bytes = static_cast<double>(input.bytes().size());
  std::cerr << format_bytes(bytes) << " to " << ids.size() << " ids in " << format_duration(seconds) << " ("
            << format_bytes(bytes / seconds) << "/s)\n";
}

inline std::vector<text::TokenId> read_ids(const std::string& name) {
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

inline void decode(const CodecOptions& options) {
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

inline void add_codec_commands(CLI::App& app) {
  auto options = std::make_shared<CodecOptions>();
  CodecOptions& o = *options;
  const auto files = [&](CLI::App* command, const char* input, const char* output) {
    command->add_option("--tokenizer", o.tokenizer, "Folder, tokenizer.json or tiktoken file")->required();
    command->add_option("--input", o.input, input)->required();
    command->add_option("--output", o.output, output)->required();
    command->add_option("--pattern", o.pattern,
                        "How a tiktoken file splits text: llama3, gpt2, qwen2, o200k, az or a regular expression");
  };
  CLI::App* command = add_command(app, "encode", "Turn text into ids, without a beginning-of-text token",
                                  [options] { encode(*options); });
  files(command, "File that is one text; - for standard input",
        "File; .bin: little-endian u32, else numbers; - to print");
  command
      ->add_option("--special", o.special, "What names of special tokens in the text are: text, or allow: the tokens")
      ->type_name("NAME")
      ->check(CLI::IsMember({"text", "allow"}));
  command->add_option("--cache-size", o.cache_size, "Memory in which each thread may remember words, as 32MiB")
      ->type_name("SIZE");
  add_threads(*command, o.threads);

  command = add_command(app, "decode", "Turn ids into text", [options] { decode(*options); });
  files(command, "File of ids; .bin: little-endian u32, else numbers; - for standard input",
        "File of text; - to print");
}

}  // namespace ilme::program
