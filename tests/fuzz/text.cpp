/// Any bytes as text: decoding gives them back, threads change nothing, the scanners split as the regular expressions
/// do, and streaming gives the same text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/regex.hpp>
#include <ilme/text/stream_decoder.hpp>
#include <ilme/text/tokenizer.hpp>

#include "temporary_file.hpp"

namespace {

using namespace ilme;

struct Pattern {
  text::PreTokenizer scanner;
  text::Regex regex;
  text::Tokenizer tokenizer;
};

text::Tokenizer train(const text::PreTokenizer& pre_tokenizer) {
  text::BpeTrainerOptions options;
  options.vocabulary_size = 400;
  options.special_tokens = {"<|a|>", "<|ab|>"};
  const text::BpeTrainer trainer(pre_tokenizer, options);
  text::WordCounter words;
  text::count_words(
      pre_tokenizer,
      "Bakıda kitablardan 2026-cı ildə BMT-nin sür’ət don't aaaaaaaaaaaaaaaa ...... \n\n\n\t  the then there\n"
      "Kitablar, kitablarımız; kitabdan: 12345678 əəəəə ııııı İstanbul’un ﷺ 中文中文中文 "
      "🙂🙂\n",
      words);
  return text::Tokenizer(trainer.train(words));
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = [] {
    std::vector<Pattern> made;
    for (const char* name : {"llama3", "qwen2", "gpt2", "o200k", "az"}) {
      const auto scanner = text::PreTokenizer::named(name);
      made.push_back({scanner, text::Regex(scanner.signature()[0]), train(scanner)});
    }
    return made;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const Pattern& pattern : patterns()) {
    const std::vector<text::TokenId> ids = pattern.tokenizer.encode(bytes);
    fuzz::require(pattern.tokenizer.decode(ids) == bytes);
    fuzz::require(pattern.tokenizer.encode(bytes, text::Special::text, 2) == ids);
    fuzz::require(pattern.tokenizer.decode(pattern.tokenizer.encode(bytes, text::Special::allow)) == bytes);
    if (!text::is_valid_utf8(bytes)) continue;
    std::vector<std::string_view> scanned, matched;
    pattern.scanner.split(bytes, [&](std::string_view piece) { scanned.push_back(piece); });
    pattern.regex.split(bytes, [&](std::string_view piece) { matched.push_back(piece); });
    fuzz::require(scanned == matched);
    text::StreamDecoder stream(pattern.tokenizer);
    std::string streamed;
    for (const text::TokenId id : ids) streamed += stream.push(id);
    fuzz::require(streamed + stream.finish() == bytes);
  }
  return 0;
}
