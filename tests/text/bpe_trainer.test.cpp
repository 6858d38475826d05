#include <ilme/text/bpe_trainer.hpp>

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

using NamedMerges = std::vector<std::pair<std::string, std::string>>;

NamedMerges named_merges(const TokenizerModel& model) {
  NamedMerges out;
  for (const Merge& merge : model.merges) {
    out.emplace_back(to_byte_level(model.tokens[merge.left]), to_byte_level(model.tokens[merge.right]));
  }
  return out;
}

/// Counts lines without their newlines, as the reference cases were made.
WordCounter count_lines(const PreTokenizer& pre_tokenizer, std::string_view text) {
  WordCounter words;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    pre_tokenizer.split(rest.substr(0, end), [&](std::string_view piece) { words.add(piece); });
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

TokenizerModel train_on(std::string_view text, BpeTrainerOptions options, const char* pattern = "llama3") {
  const BpeTrainer trainer(PreTokenizer::named(pattern), std::move(options));
  WordCounter words;
  count_words(trainer.pre_tokenizer(), text, words);
  return trainer.train(words);
}

}  // namespace

// Merges and ids of this file: tokenizers 0.23.3.
TEST_CASE("Ties go to the smallest pair of ids") {
  const TokenizerModel model = test::small_model("<|endoftext|>", "gpt2");
  const NamedMerges expected = {
      {"Ä", "±"},   {"É", "Ļ"},   {"b", "a"},     {"n", "ÉĻ"},     {"Ã", "¼"},    {"Å", "Ł"},  {"a", "n"},
      {"a", "t"},   {"a", "z"},   {"a", "Ä"},     {"d", "ÉĻ"},     {"d", "aÄ"},   {"i", "z"},  {"i", "ÅŁ"},
      {"n", "iz"},  {"q", "Ä±"},  {"q", "az"},    {"s", "Ã"},      {"z", "Ã¼"},   {"¶", "z"},  {"Ä±", "q"},
      {"Ä±", "ÅŁ"}, {"ba", "ba"}, {"nÉĻ", "nÉĻ"}, {"Ã¼", "zÃ¼"},   {"an", "a"},   {"at", "a"}, {"dÉĻ", "niz"},
      {"daÄ", "Ł"}, {"qÄ±", "z"}, {"sÃ", "¶z"},   {"Ä±ÅŁ", "Ä±q"}, {"Ã¼zÃ¼", "m"}};
  CHECK(named_merges(model) == expected);
  CHECK(model.tokens.size() == 290);
  CHECK(model.tokens[0] == "<|endoftext|>");
  CHECK(model.tokens[1] == "!");
  CHECK(model.tokens[65] == "a");
  CHECK(model.tokens[221] == " ");
  CHECK(model.tokens[129] == "\xC4");
  CHECK(model.merges[0] == Merge{129, 110, 257});
}

TEST_CASE("Reference: ties do not depend on the order of the words") {
  const auto folder = test::shared_path("cases/tok-train-ties");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  for (const char* name : {"order_a.txt", "order_b.txt", "order_c.txt"}) {
    BpeTrainerOptions options;
    options.vocabulary_size = expected.at("vocab_size").get<std::size_t>();
    options.special_tokens = expected.at("special_tokens").get<std::vector<std::string>>();
    const BpeTrainer trainer(PreTokenizer::named("gpt2"), options);
    const TokenizerModel model = trainer.train(count_lines(trainer.pre_tokenizer(), read_file(*folder / name)));
    CHECK(named_merges(model) == expected.at("merges").get<NamedMerges>());
  }
}

TEST_CASE("Reference: degenerate corpora") {
  const auto folder = test::shared_path("cases/tok-degenerate-training");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  const auto round_trip = expected.at("round_trip_text").get<std::string>();
  for (const Json& entry : expected.at("cases")) {
    INFO(entry.at("name"));
    BpeTrainerOptions options;
    options.vocabulary_size = entry.at("vocab_size").get<std::size_t>();
    options.min_frequency = entry.at("min_frequency").get<std::uint64_t>();
    options.special_tokens = entry.at("special_tokens").get<std::vector<std::string>>();
    if (options.vocabulary_size < 257) {
      CHECK_THROWS_AS(BpeTrainer(PreTokenizer::named("gpt2"), options), InputError);
      continue;
    }
    const BpeTrainer trainer(PreTokenizer::named("gpt2"), options);
    const std::string text = read_file(*folder / entry.at("file").get<std::string>());
    const TokenizerModel model = trainer.train(count_lines(trainer.pre_tokenizer(), text));
    CHECK(model.tokens.size() == entry.at("hf_vocab_size").get<std::size_t>());
    CHECK(named_merges(model) == entry.at("hf_merges").get<NamedMerges>());
    const Tokenizer tokenizer(model);
    CHECK(tokenizer.decode(tokenizer.encode(round_trip)) == round_trip);
  }
}

TEST_CASE("Reference: words are counted in normalised lines") {
  BpeTrainerOptions options;
  options.vocabulary_size = 256 + 16;
  options.normalizer = Normalizer::from_json(
      Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})"), "normalizer");
  const BpeTrainer trainer(PreTokenizer::named("gpt2"), options);
  WordCounter words;
  trainer.count(
      "S\u0327\u0259\u0301h\u0259r \u015F\u0259\u0301h\u0259r \u015E\u018FH\u018FR\n"
      "\u015F\u0259h\u0259rl\u0259r, \u0130ST\u0130 i\u0307sti isti\n\uFB01 kitab K\u0130tab\n",
      words);
  // By BpeTrainer of tokenizers 0.23.3, from this text in a file.
  CHECK(named_merges(trainer.train(words)) == NamedMerges{{"É", "Ļ"},
                                                          {"ÉĻ", "r"},
                                                          {"h", "ÉĻr"},
                                                          {"Å", "Ł"},
                                                          {"Ì", "ĩ"},
                                                          {"ÅŁ", "ÉĻ"},
                                                          {"s", "t"},
                                                          {"Ġ", "i"},
                                                          {"st", "i"},
                                                          {"a", "b"},
                                                          {"k", "i"},
                                                          {"t", "ab"},
                                                          {"Ì", "ģ"},
                                                          {"Ġ", "ÅŁÉĻ"},
                                                          {"Ġ", "ki"},
                                                          {"l", "ÉĻr"}});
}

TEST_CASE("Pairs run out, or are too rare") {
  BpeTrainerOptions options;
  options.vocabulary_size = 5000;
  options.special_tokens = {"<|endoftext|>"};
  CHECK(train_on("", options).tokens.size() == 257);
  CHECK(train_on("\n\n\n", options, "gpt2").merges.empty());
  options.min_frequency = 2;
  CHECK(named_merges(train_on("salam salam", options)) ==
        NamedMerges{{"a", "l"}, {"a", "m"}, {"s", "al"}, {"sal", "am"}});
  CHECK(named_merges(train_on("q\xC4\xB1z q\xC4\xB1z", options)) == NamedMerges{{"q", "Ä"}, {"±", "z"}, {"qÄ", "±z"}});
  options.min_frequency = 0;
  CHECK(named_merges(train_on("    ", options)) == NamedMerges{{"Ġ", "Ġ"}, {"ĠĠ", "ĠĠ"}});
  CHECK(named_merges(train_on("aaaaaaa", options)) ==
        NamedMerges{{"a", "a"}, {"aa", "aa"}, {"aa", "a"}, {"aaaa", "aaa"}});
  options.max_token_length = 4;  // a pair of tokens counts while it is shorter than this
  CHECK(named_merges(train_on("aaaaaaa", options)) == NamedMerges{{"a", "a"}, {"aa", "a"}});
}

TEST_CASE("A line ends at its newline") {
  BpeTrainerOptions options;
  options.vocabulary_size = 258;
  WordCounter words;
  count_words(PreTokenizer::named("llama3"), "a \n b\r\n\nc", words);
  std::vector<std::pair<std::string, std::uint64_t>> counted;
  words.for_each([&](std::string_view word, std::uint64_t count) { counted.emplace_back(word, count); });
  std::sort(counted.begin(), counted.end());
  CHECK(counted == std::vector<std::pair<std::string, std::uint64_t>>{
                       {"\n", 1}, {"\r\n", 1}, {" \n", 1}, {" b", 1}, {"a", 1}, {"c", 1}});
}

TEST_CASE("Counts beyond 32 bits keep their order") {
  WordCounter words;
  words.add("ab", 6'000'000'000);
  words.add("cd", 6'000'000'001);
  words.add("ab", 2);
  BpeTrainerOptions options;
  options.vocabulary_size = 258;
  CHECK(named_merges(BpeTrainer(PreTokenizer::named("llama3"), options).train(words)) ==
        NamedMerges{{"a", "b"}, {"c", "d"}});
}

TEST_CASE("A megabyte without a split point trains in linear time") {
  BpeTrainerOptions options;
  options.vocabulary_size = 300;
  const TokenizerModel repeated = train_on(std::string(1'000'000, 'a'), options);
  CHECK(repeated.tokens.back().size() > 1000);
  std::string letters;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) letters += static_cast<char>('a' + random_bits(7, i) % 26);
  CHECK(train_on(letters, options).tokens.size() == 300);
}

TEST_CASE("Impossible options are refused") {
  const auto make = [](std::size_t size, std::vector<std::string> specials) {
    BpeTrainerOptions options;
    options.vocabulary_size = size;
    options.special_tokens = std::move(specials);
    return BpeTrainer(PreTokenizer::named("llama3"), options);
  };
  CHECK_THROWS_MATCHES(make(257, {"<a>", "<b>"}), InputError, MessageMatches(ContainsSubstring("at least 258")));
  CHECK_THROWS_AS(make(std::size_t{1} << 40, {}), InputError);
  CHECK_THROWS_AS(make(300, {"<a>", "<a>"}), InputError);
  CHECK_THROWS_AS(make(300, {""}), InputError);
  CHECK_THROWS_AS(make(300, {"a"}), InputError);
  CHECK_THROWS_AS(make(300, {"\xFF"}), InputError);
  CHECK_THROWS_AS(special_token_set("<a>,,<b>"), InputError);
  CHECK_THROWS_AS(special_token_set("<a>,<a>"), InputError);
  CHECK(special_token_set("<a>,<b>") == std::vector<std::string>{"<a>", "<b>"});
  CHECK(special_token_set("none").empty());
}

TEST_CASE("Text never merges into a control token") {
  BpeTrainerOptions options;
  options.vocabulary_size = 259;
  options.special_tokens = {"ab"};
  const TokenizerModel model = train_on("abc abc abc", options);
  CHECK(named_merges(model)[0] == std::pair<std::string, std::string>{"a", "b"});
  const Tokenizer tokenizer(model);
  for (const TokenId id : tokenizer.encode("abc")) CHECK_FALSE(tokenizer.is_special(id));
  CHECK(tokenizer.encode("ab", Special::allow) == std::vector<TokenId>{0});
}
