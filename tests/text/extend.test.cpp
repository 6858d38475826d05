#include <ilme/text/extend.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>
#include <ilme/text/bpe_trainer.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::text;

namespace {

/// Words of two made-up languages that share some syllables.
std::string made_text(bool second, std::size_t words) {
  static constexpr const char* kFirst[] = {"th", "e", "ing", "an", "er", "or", "st", "in"};
  static constexpr const char* kSecond[] = {"lar", "ın", "də", "ki", "tab", "gö", "in", "an"};
  std::string text;
  for (std::uint64_t i = 0; i < words; ++i) {
    for (std::uint64_t j = 0, length = 1 + random_bits(1, i) % 4; j < length; ++j) {
      const std::uint64_t syllable = random_bits(second ? 3 : 2, i, j) % 64;
      text += (second ? kSecond : kFirst)[(syllable * syllable) >> 9];
    }
    text += i % 9 == 8 ? ".\n" : " ";
  }
  return text;
}

TokenizerModel train_base(std::string_view text, std::size_t size, std::vector<std::string> specials = {"<s>"}) {
  BpeTrainerOptions options;
  options.vocabulary_size = size;
  options.special_tokens = std::move(specials);
  const BpeTrainer trainer(PreTokenizer::named("llama3"), options);
  WordCounter words;
  trainer.count(text, words);
  return trainer.train(words);
}

Extension extend(const TokenizerModel& base, std::string_view text, std::size_t count) {
  ExtenderOptions options;
  options.token_count = count;
  const BpeExtender extender(base, options);
  WordCounter words;
  extender.count(text, words);
  return extender.extend(words);
}

std::uint64_t tokens_of_lines(const Tokenizer& tokenizer, std::string_view text) {
  std::uint64_t tokens = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    tokens += tokenizer.encode(text.substr(begin, end - begin)).size();
    begin = end;
  }
  return tokens;
}

}  // namespace

TEST_CASE("To extend by the text of the base is to train longer") {
  const std::string text = made_text(true, 3000);
  const TokenizerModel base = train_base(text, 300), longer = train_base(text, 400);
  const Extension extension = extend(base, text, 100);
  CHECK(extension.model.tokens == longer.tokens);
  CHECK(extension.model.merges == longer.merges);
}

TEST_CASE("The base stays, no text gets longer, and the report is right") {
  const std::string english = made_text(false, 3000), other = made_text(true, 3000);
  TokenizerModel base = train_base(english, 350);
  // Ids with a gap, and a special token behind it.
  base.tokens.resize(360);
  base.tokens.push_back("<|end|>");
  base.added_tokens.push_back({"<|end|>", 360});
  for (const bool whole_words : {false, true}) {
    base.ignore_merges = whole_words;
    const Extension extension = extend(base, other, 50);
    const TokenizerModel& model = extension.model;
    REQUIRE(model.tokens.size() == 411);
    CHECK(std::vector(model.tokens.begin(), model.tokens.begin() + 361) == base.tokens);
    REQUIRE(model.merges.size() == base.merges.size() + 50);
    CHECK(std::vector(model.merges.begin(), model.merges.end() - 50) == base.merges);
    const Tokenizer before(base), after(model);
    CHECK(extension.tokens_before == tokens_of_lines(before, other));
    CHECK(extension.tokens_after == tokens_of_lines(after, other));
    CHECK(extension.tokens_after < extension.tokens_before);
    CHECK(tokens_of_lines(after, english) <= tokens_of_lines(before, english));
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      std::string text;
      for (std::uint64_t i = 0, length = random_bits(seed, 0) % 60; i < length; ++i) {
        const std::string& source = random_bits(seed, i, 1) % 2 != 0 ? english : other;
        text += source.substr(random_bits(seed, i, 2) % source.size(), random_bits(seed, i, 3) % 6);
      }
      CHECK(after.encode(text).size() <= before.encode(text).size());
      CHECK(after.decode(after.encode(text)) == text);
    }
    // What is written is read with the same ids.
    const test::TemporaryFolder folder;
    after.save(folder.path());
    const Tokenizer again = Tokenizer::load(folder.path());
    CHECK(again.encode(other) == after.encode(other));
    CHECK(again.encode("<|end|>", Special::allow) == std::vector<TokenId>{360});
  }
}

TEST_CASE("A tiktoken base goes on after its largest rank") {
  const TokenizerModel trained = train_base(made_text(false, 3000), 300, {});
  TokenizerModel base = trained;
  base.rank_is_result = base.ignore_merges = true;
  const Extension extension = extend(base, made_text(true, 3000), 40);
  CHECK(extension.model.tokens.size() == 340);
  const Tokenizer tokenizer(extension.model);
  const test::TemporaryFolder folder;
  tokenizer.save(folder.path());
  const std::string text = made_text(true, 500) + made_text(false, 500);
  CHECK(Tokenizer::load(folder.path()).encode(text) == tokenizer.encode(text));
}

TEST_CASE("A pair that spells a known token is passed over") {
  TokenizerModel base = train_base("", 257);
  base.tokens.push_back("abcd");  // no merge leads there
  base.tokens.push_back("xy");
  base.added_tokens.push_back({"xy", 258});
  const Extension extension = extend(base, "abcd abcd abcd xyz xyz\n", 3);
  for (std::size_t id = 259; id < extension.model.tokens.size(); ++id) {
    CHECK(extension.model.tokens[id] != "abcd");
    CHECK(extension.model.tokens[id] != "xy");
  }
  CHECK(extension.model.tokens.size() == 262);
}

TEST_CASE("Impossible extensions are refused, and one without text is the base") {
  TokenizerModel base = train_base("", 257);
  CHECK(extend(base, "", 10).model.tokens == base.tokens);
  ExtenderOptions options;
  options.token_count = std::size_t{1} << 40;
  CHECK_THROWS_AS(BpeExtender(base, options), InputError);
}

TEST_CASE("A byte that the base leaves out stays out") {
  TokenizerModel base = train_base("", 257);
  const auto x = std::find(base.tokens.begin(), base.tokens.end(), "x") - base.tokens.begin();
  base.tokens[static_cast<std::size_t>(x)].clear();
  const Extension extension = extend(base, "axb axb axb axb\n", 3);
  REQUIRE(extension.model.tokens.size() > base.tokens.size());
  CHECK(extension.model.tokens[base.tokens.size()] == "ab");
}
