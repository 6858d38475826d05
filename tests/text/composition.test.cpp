// The parts of the tokenizer workshop in code, as the README shows them.
#include <string>

#include <catch2/catch_test_macros.hpp>

#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/normalizer.hpp>
#include <ilme/text/tokenizer.hpp>

TEST_CASE("The parts compose as in the README") {
  const std::string text = "Kitablardan kitablar, kitablardan biri: Bak\u0131, 2026-c\u0131 il.\n";
  // README begins
  using namespace ilme;
  const text::BpeTrainer trainer(text::PreTokenizer::named("az"),
                                 {.vocabulary_size = 32000, .normalizer = text::Normalizer::named("az")});
  text::WordCounter words;
  trainer.count(text, words);
  const text::Tokenizer tokenizer(trainer.train(words));
  const auto ids = tokenizer.encode("kitablardan");
  const auto [tokens, ranges] = tokenizer.encode_with_offsets("Bakı, 2026-cı il");  // ranges of bytes of the source
  // README ends
  CHECK(tokenizer.decode(ids) == "kitablardan");
  REQUIRE(tokens.size() == ranges.size());
  CHECK(ranges.front().begin == 0);
  CHECK(ranges.back().end == std::string("Bakı, 2026-cı il").size());
}
