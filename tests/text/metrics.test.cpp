#include <ilme/text/metrics.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/file.hpp>
#include <ilme/text/encode_speed.hpp>
#include <ilme/text/normalizer.hpp>
#include <ilme/text/parity.hpp>
#include <ilme/text/token_split.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::WithinAbs;

namespace {

/// A tokenizer that knows these words whole, and every other byte by itself.
Tokenizer tokenizer_of(const std::vector<std::string>& words, const std::string& pattern = "llama3") {
  WordCounter counts;
  for (const std::string& word : words) counts.add(word, 3);
  BpeTrainerOptions options;
  options.vocabulary_size = 300;
  return Tokenizer(BpeTrainer(PreTokenizer::named(pattern), options).train(counts));
}

/// The words of `text` as "whole/core" with bars between them.
std::string words_of(std::string_view text) {
  std::string out;
  for_each_word(text, [&](const WordSpan& word) {
    if (!out.empty()) out += '|';
    out += std::string(text.substr(word.begin, word.end - word.begin)) + '/' +
           std::string(text.substr(word.core_begin, word.core_end - word.core_begin));
  });
  return out;
}

}  // namespace

TEST_CASE("Words between whitespace, and the word without its punctuation") {
  CHECK(words_of("") == "");
  CHECK(words_of(" \t\n") == "");
  CHECK(words_of("(kitab), \u201Cdəniz\u201D.") == "(kitab),/kitab|\u201Cdəniz\u201D./dəniz");
  CHECK(words_of("BMT-nin 2026-cı \u2014 484.1 o\u2019nu") ==
        "BMT-nin/BMT-nin|2026-cı/2026-cı|\u2014/|484.1/|o\u2019nu/o\u2019nu");
  CHECK(words_of("\xFF"
                 "a\xC9\u00A0b") ==
        "\xFF"
        "a\xC9/a|b/b");
  CHECK(count_whitespace_words(" a b\t\xFF\u3000c ") == 4);
  CHECK(count_characters("dəniz\xFF") == 6);
}

TEST_CASE("Every measure, counted by hand") {
  // "ana| kitab|,| kitab|lar" and "ana| |1|2"
  const Tokenizer tokenizer = tokenizer_of({"ana", " ana", " kitab", "lar"});
  const TextMetrics m = measure(tokenizer, "ana kitab, kitablar\n\nana 12\n");
  CHECK(m.bytes == 25);
  CHECK(m.characters == 25);
  CHECK(m.words == 5);
  CHECK(m.tokens == 9);
  CHECK(m.tokens_per_word() == 9.0 / 5.0);
  CHECK(m.bytes_per_token() == 25.0 / 9.0);
  CHECK(m.characters_per_token() == 25.0 / 9.0);
  CHECK(m.running_words == 4);  // 12 is no word
  CHECK(m.continued_words == 1);
  CHECK(m.continued_word_rate() == 0.25);
  CHECK(m.distinct_words == 3);
  CHECK(m.retained_words == 2);
  CHECK(m.single_token_retention() == 2.0 / 3.0);
  CHECK(m.tokens_seen == 7);
  CHECK(m.vocabulary_size == tokenizer.vocabulary_size());
  CHECK(m.vocabulary_use() == 7.0 / static_cast<double>(tokenizer.vocabulary_size()));
  CHECK(m.words_in_context() == 131072.0 * 5.0 / 9.0);
  CHECK(m.single_byte_share() == 4.0 / 9.0);
  CHECK(m.cutting_tokens == 0);
  CHECK(m.lengths[1] == 4);
  CHECK(m.lengths[3] == 3);
  CHECK(m.lengths[6] == 2);
  // tokenization-scorer 1.1.8 for these tokens
  CHECK_THAT(m.renyi_efficiency(), WithinAbs(0.9253786899612934, 1e-12));
  CHECK_THAT(m.renyi_entropy, WithinAbs(2.5978664200300545, 1e-12));
  CHECK_THAT(m.renyi_efficiency_of_vocabulary() * std::log2(static_cast<double>(m.vocabulary_size)),
             WithinAbs(m.renyi_entropy, 1e-12));
}

TEST_CASE("Characters that are cut") {
  const TextMetrics m =
      measure(tokenizer_of({"ana"}), "ə aə\xFF");  // bytes of ə, a space, a and ə's bytes, a stray one
  CHECK(m.tokens == 7);
  CHECK(m.characters == 5);
  CHECK(m.cutting_share() == 5.0 / 7.0);
  CHECK(m.lengths[0] == 5);
  CHECK(m.lengths[1] == 2);
  CHECK(m.continued_word_rate() == 1.0);
  CHECK(m.single_token_retention() == 0.0);
}

TEST_CASE("A token over several words cuts none of them") {
  const Tokenizer tokenizer = tokenizer_of({"ana kitab"}, "[^\\n]+");
  const TextMetrics m = measure(tokenizer, "ana kitab");
  CHECK(m.tokens == 1);
  CHECK(m.tokens_per_word() == 0.5);
  CHECK(m.running_words == 2);
  CHECK(m.continued_words == 0);
}

TEST_CASE("Source bytes and source words, with a normaliser") {
  TokenizerModel model = tokenizer_of({"söz", " söz"}).model();
  model.normalizer = Normalizer::named("nfc");
  const TextMetrics m = measure(Tokenizer(model), "so\u0308z so\u0308z, söz");
  CHECK(m.tokens == 4);
  CHECK(m.bytes == 5 + 1 + 6 + 1 + 4);
  CHECK(m.characters == 4 + 1 + 5 + 1 + 3);
  CHECK(m.running_words == 3);
  CHECK(m.continued_words == 0);
  CHECK(m.distinct_words == 2);  // as they are written
  CHECK(m.retained_words == 2);
  model.normalizer = Normalizer();
  CHECK(measure(Tokenizer(model), "so\u0308z so\u0308z, söz").continued_words == 2);
}

TEST_CASE("A text without words, and none at all") {
  for (const char* text : {"", "\n\n", "  "}) {
    const TextMetrics m = measure(tokenizer_of({"ana"}), text);
    for (const double value : {m.tokens_per_word(), m.continued_word_rate(), m.single_token_retention(),
                               m.renyi_efficiency(), m.words_in_context()}) {
      CHECK(value == 0.0);
    }
  }
}

TEST_CASE("The same figures on any number of threads") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "dəniz baba " + std::to_string(i * 7919) + " üzüm, iş\n";
  const TextSample sample = sample_of_lines("text", text);
  const TextMetrics one = measure(tokenizer, sample, 1);
  CHECK(measure(tokenizer, sample, 3) == one);
  CHECK(measure(tokenizer, sample, 8) == one);
  ParallelText parallel{"a", "b", {}};
  for (int i = 0; i < 500; ++i) parallel.pairs.push_back({std::string(1 + i % 7, 'a'), std::string(1 + i % 11, 'b')});
  CHECK(measure_parity(tokenizer, parallel, 5) == measure_parity(tokenizer, parallel, 1));
}

TEST_CASE("Parity") {
  const Tokenizer tokenizer = tokenizer_of({"ana", "kitab"});
  const ParityMetrics m = measure_parity(tokenizer, {"a", "b", {{"ana", "xyz"}, {"kitab", "x"}, {"qq", "x"}}});
  CHECK(m.pairs == 3);
  CHECK(m.first_tokens == 4);
  CHECK(m.second_tokens == 5);
  CHECK(m.premium() == 0.8);
  CHECK_THAT(m.mean_ratio, WithinAbs((1.0 / 3.0 + 1.0 + 2.0) / 3.0, 1e-15));
  CHECK(measure_parity(tokenizer, {}).premium() == 0.0);
}

TEST_CASE("Speeds are measured") {
  const EncodeSpeed speed = measure_speed(test::small_tokenizer("none"), sample_of_lines("t", "dəniz baba\n"), 2);
  CHECK(speed.cold > 0.0);
  CHECK(speed.warm > 0.0);
  CHECK(speed.warm_all > 0.0);
  CHECK(speed.threads == 1);  // one document gives a second thread nothing to do
}

TEST_CASE("How a word splits") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  CHECK(show_split(split_word(tokenizer, "dənizdə")) == "dəniz|də");
  CHECK(show_split(split_word(tokenizer, "ğ")) == "<C4>|<9F>");
  CHECK(show_split(split_word(tokenizer, "\n\x7F")) == "<0A>|<7F>");
}

TEST_CASE("The beginning of a text") {
  const std::string sentence = "Bu cümlə o qədər uzundur ki, başlıq ola bilməz, ona görə də nümunə kimi göstərilir.";
  CHECK(excerpt(sample_of_lines("t", "Başlıq\n" + sentence + "\n")) == sentence);
  CHECK(excerpt(sample_of_lines("t", "Başlıq\n")) == "Başlıq");
  CHECK(excerpt(sample_of_lines("t", sentence), 20) == "Bu cümlə o qədər");
  CHECK(excerpt(sample_of_lines("t", std::string(300, 'a')), 20) == std::string(20, 'a'));
  CHECK(excerpt({}).empty());
}

TEST_CASE("Reference: the held-out text as Hugging Face tokenizers and tokenization-scorer measure it") {
  const auto text = test::shared_path("data/az_heldout.txt"), tokenizers = test::shared_path("data/tokenizers");
  if (!text || !tokenizers) SKIP("the reference data is absent");
  const TextSample sample = sample_of_lines("az", read_file(*text));
  const TextMetrics az = measure(Tokenizer::load(*tokenizers / "az_hf_bbpe/az_bbpe_32k.json"), sample, 2);
  CHECK(az.tokens == 158257);
  CHECK_THAT(az.tokens_per_word(), WithinAbs(1.4923, 5e-5));
  CHECK_THAT(az.continued_word_rate(), WithinAbs(0.1746, 5e-5));
  CHECK_THAT(az.single_token_retention(), WithinAbs(0.4395, 5e-5));
  CHECK_THAT(az.renyi_efficiency(), WithinAbs(0.461085, 5e-7));
  CHECK_THAT(az.renyi_efficiency_of_vocabulary(), WithinAbs(0.439914, 5e-7));
  const TextMetrics gpt2 = measure(Tokenizer::load(*tokenizers / "gpt2"), sample, 2);
  CHECK(gpt2.tokens == 549505);
  CHECK_THAT(gpt2.continued_word_rate(), WithinAbs(0.9225, 5e-5));
  CHECK_THAT(gpt2.single_token_retention(), WithinAbs(0.0346, 5e-5));
  CHECK_THAT(gpt2.renyi_efficiency(), WithinAbs(0.330545, 5e-7));
}
