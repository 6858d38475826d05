#include <ilme/text/corpus_words.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/random.hpp>
#include <ilme/text/bpe_trainer.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// Words of 0 to 400 bytes, some of them often.
std::string word(std::uint64_t i) {
  const std::uint64_t rank = random_bits(1, i) % (1 + random_bits(2, i) % 60000);
  std::string made(random_bits(3, rank) % (rank % 50 == 0 ? 400 : 20), 'a');
  for (std::size_t j = 0; j < made.size(); ++j) made[j] = static_cast<char>(random_bits(4, rank, j) % 256);
  return made;
}

std::map<std::string, std::uint64_t> all_of(const CorpusWords& words) {
  std::map<std::string, std::uint64_t> counts;
  words.for_each([&](std::string_view word, std::uint64_t count) {
    CHECK(counts.emplace(word, count).second);  // each word once
  });
  return counts;
}

}  // namespace

TEST_CASE("A counter holds words of any bytes and any length") {
  std::map<std::string, std::uint64_t> expected;
  WordCounter counter;
  for (std::uint64_t i = 0; i < 50000; ++i) {
    ++expected[word(i)];
    counter.add(word(i));
  }
  for (const std::size_t length : {254, 255, 256, 70000}) {
    counter.add(std::string(length, 'x'), 1'000'000'000'000);
    counter.add(std::string(length, 'x'));
    expected[std::string(length, 'x')] = 1'000'000'000'001;
  }
  CHECK(counter.size() == expected.size());
  std::map<std::string, std::uint64_t> counts;
  counter.for_each([&](std::string_view word, std::uint64_t count) { counts.emplace(word, count); });
  CHECK(counts == expected);
  std::vector<std::pair<std::string, std::uint64_t>> sorted;
  counter.take_sorted([&](std::string_view word, std::uint64_t count) { sorted.emplace_back(word, count); });
  CHECK(sorted == std::vector<std::pair<std::string, std::uint64_t>>(expected.begin(), expected.end()));
  CHECK(counter.size() == 0);
  counter.add("ab");
  CHECK(counter.size() == 1);
}

TEST_CASE("Words that do not fit into memory are counted on disk to the same result") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 200000; ++i) ++expected[word(i)];
  for (const std::size_t threads : {1, 3}) {
    for (const std::size_t memory : {std::size_t{0}, threads << 20, std::size_t{1} << 26}) {
      CorpusWords words(threads, memory, folder.path());
      for (std::uint64_t i = 0; i < 200000; ++i) words.counter(i % threads).add(word(i));
      words.finish();
      CHECK((words.spills() > 0) == (memory == threads << 20));
      CHECK(all_of(words) == expected);
      CHECK(all_of(words) == expected);  // as often as one likes
      CHECK(std::filesystem::is_empty(folder.path()));
      // Merges come from counts alone.
      BpeTrainerOptions options;
      options.vocabulary_size = 300;
      WordCounter plain;
      for (const auto& [word, count] : expected) plain.add(word, count);
      const BpeTrainer trainer(PreTokenizer::named("llama3"), options);
      if (threads == 1) CHECK(trainer.train(std::move(words)).merges == trainer.train(plain).merges);
    }
  }
}

TEST_CASE("A counter that is put onto a full one spills too") {
  const test::TemporaryFolder folder;
  CorpusWords words(2, 2 << 20, folder.path());
  std::map<std::string, std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 36000; ++i) {
    words.counter(i % 2).add(std::to_string(i));
    ++expected[std::to_string(i)];
  }
  REQUIRE(words.spills() == 0);  // each fits, both together do not
  words.finish();
  CHECK(words.spills() > 0);
  CHECK(all_of(words) == expected);
}

TEST_CASE("A word beyond the limit, a missing folder and a full disk are errors") {
  CorpusWords words(1, 1 << 20, "/nonexistent/folder");
  CHECK_THROWS_MATCHES(words.counter(0).add(std::string(2 << 20, 'a')), InputError,
                       MessageMatches(ContainsSubstring("expected less than 1048576")));
  const auto fill = [&](CorpusWords& full) {
    for (std::uint64_t i = 0; i < 200000; ++i) full.counter(0).add(word(i));
  };
  CHECK_THROWS_MATCHES(fill(words), RunError, MessageMatches(ContainsSubstring("/nonexistent/folder")));
}

TEST_CASE("Merging refuses what its memory cannot hold, and says what it would need") {
  WordCounter words;
  for (std::uint64_t i = 0; i < 20000; ++i) words.add(word(i));
  BpeTrainerOptions options;
  options.vocabulary_size = 1000;
  options.memory_limit = 1 << 20;
  CHECK_THROWS_MATCHES(BpeTrainer(PreTokenizer::named("llama3"), options).train(words), InputError,
                       MessageMatches(ContainsSubstring("distinct words") && ContainsSubstring("needs about") &&
                                      ContainsSubstring("1.0 MB of the budget")));
  options.min_word_count = 1000;  // none are left
  CHECK(BpeTrainer(PreTokenizer::named("llama3"), options).train(words).merges.empty());
}
