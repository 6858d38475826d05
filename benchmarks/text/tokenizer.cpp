/// Counting words, learning merges, extending a vocabulary, encoding: cold (no word seen before) and warm.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <benchmark/benchmark.h>

#include <ilme/core/file.hpp>
#include <ilme/core/random.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/extend.hpp>
#include <ilme/text/tokenizer.hpp>

namespace {

using namespace ilme;

/// The file that ILME_BENCHMARK_TEXT names, or 8 MB of words made of syllables with a long tail of frequencies.
const std::string& corpus() {
  static const std::string text = [] {
    if (const char* path = std::getenv("ILME_BENCHMARK_TEXT")) return read_file(path);
    static constexpr const char* kSyllables[] = {"ki", "tab", "lar", "dan", "da", "gə", "lir", "mək", "yaz", "ış",
                                                 "su", "ev",  "dən", "iz",  "qo", "şa", "böy", "ük",  "ın",  "ər"};
    std::string made;
    for (std::uint64_t i = 0; made.size() < 8'000'000; ++i) {
      const double rank = 1.0 / (random_uniform(1, i) + 2e-5);  // a few words often, many seldom
      const auto word = static_cast<std::uint64_t>(rank);
      for (std::uint64_t j = 0, length = 1 + random_bits(2, word) % 5; j < length; ++j) {
        made += kSyllables[random_bits(3, word, j) % 20];
      }
      made += i % 12 == 11 ? ".\n" : " ";
    }
    return made;
  }();
  return text;
}

text::BpeTrainer trainer(const std::string& pattern, std::size_t size) {
  text::BpeTrainerOptions options;
  options.vocabulary_size = size;
  return text::BpeTrainer(text::PreTokenizer::named(pattern), options);
}

void count(benchmark::State& state, const std::string& pattern) {
  const auto pre_tokenizer = text::PreTokenizer::named(pattern);
  for (auto _ : state) {
    text::WordCounter words;
    text::count_words(pre_tokenizer, corpus(), words);
    benchmark::DoNotOptimize(words.size());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * corpus().size()));
}

void learn(benchmark::State& state) {
  const text::BpeTrainer learner = trainer("llama3", static_cast<std::size_t>(state.range(0)));
  text::WordCounter words;
  text::count_words(learner.pre_tokenizer(), corpus(), words);
  std::size_t merges = 0;
  for (auto _ : state) merges = learner.train(words).merges.size();
  state.counters["merges"] = static_cast<double>(merges);
  state.counters["words"] = static_cast<double>(words.size());
}

/// Continues an 8k vocabulary by as many tokens as the argument says.
void extend(benchmark::State& state) {
  const text::BpeTrainer learner = trainer("llama3", 8192);
  text::WordCounter words;
  learner.count(corpus(), words);
  text::ExtenderOptions options;
  options.token_count = static_cast<std::size_t>(state.range(0));
  const text::BpeExtender extender(learner.train(words), options);
  text::Extension extension;
  for (auto _ : state) extension = extender.extend(words);
  state.counters["tokens"] = static_cast<double>(extension.model.tokens.size());
  state.counters["words"] = static_cast<double>(words.size());
}

void encode(benchmark::State& state, bool warm) {
  const text::BpeTrainer learner = trainer("llama3", 32768);
  text::WordCounter words;
  text::count_words(learner.pre_tokenizer(), corpus(), words);
  const text::TokenizerModel model = learner.train(words);
  text::Tokenizer tokenizer(model);
  tokenizer.encode(corpus());
  for (auto _ : state) {
    if (!warm) {
      state.PauseTiming();
      tokenizer = text::Tokenizer(model);
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(tokenizer.encode(corpus()).data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * corpus().size()));
}

BENCHMARK_CAPTURE(count, llama3, "llama3")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(count, gpt2, "gpt2")->Unit(benchmark::kMillisecond);
BENCHMARK(learn)->Arg(8192)->Arg(32768)->Unit(benchmark::kMillisecond);
BENCHMARK(extend)->Arg(8192)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, cold, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, warm, true)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
