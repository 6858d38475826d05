#include <ilme/text/metrics.hpp>

#include <string>

#include <catch2/catch_all.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;

TEST_CASE("Tokens per word and bytes per token") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  const TextMetrics metrics = measure(tokenizer, "dəniz baba\n\n\u00A0ana\n");
  CHECK(metrics.words == 3);
  CHECK(metrics.bytes == 6 + 1 + 4 + 2 + 3);
  CHECK(metrics.tokens == 1 + 2 + 3);  // a space goes with the word and has no merge here
  CHECK(metrics.tokens_per_word() == 2.0);
  CHECK(metrics.bytes_per_token() == 16.0 / 6.0);
  CHECK(measure(tokenizer, "").tokens_per_word() == 0.0);
  CHECK(count_whitespace_words(" a b\t\xFF\u3000c ") == 4);
  std::string many;
  for (int i = 0; i < 100000; ++i) many += "dəniz baba\n";
  CHECK(measure(tokenizer, many, 3).tokens == 300000);
}

TEST_CASE("How a word splits") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  CHECK(show_split(split_word(tokenizer, "dənizdə")) == "dəniz|də");
  CHECK(show_split(split_word(tokenizer, "ğ")) == "<C4>|<9F>");
}

TEST_CASE("Reference: tokens per word of the held-out text") {
  const auto text = test::shared_path("data/az_heldout.txt"), tokenizers = test::shared_path("data/tokenizers");
  if (!text || !tokenizers) SKIP("the reference data is absent");
  const std::string bytes = read_file(*text);
  CHECK_THAT(measure(Tokenizer::load(*tokenizers / "az_hf_bbpe/az_bbpe_32k.json"), bytes).tokens_per_word(),
             Catch::Matchers::WithinAbs(1.49, 0.005));
  CHECK_THAT(measure(Tokenizer::load(*tokenizers / "gpt2"), bytes).tokens_per_word(),
             Catch::Matchers::WithinAbs(5.18, 0.005));
}
