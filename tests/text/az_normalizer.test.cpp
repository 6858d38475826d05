#include <ilme/text/az_normalizer.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>
#include <ilme/text/normalizer.hpp>

using namespace ilme;
using namespace ilme::text;

namespace {

std::string normalize(std::string_view text, const AzNormalizerOptions& options = {}) {
  return Normalizer::from_json(az_normalizer_json(options), "az").normalize(text);
}

}  // namespace

// The expected texts are those of tokenizers 0.23.3; tests/peers/compare_az_normalizer.py compares far more.
TEST_CASE("The normaliser for Azerbaijani writes letters and apostrophes one way") {
  CHECK(normalize("i\u0307ki s\u0327ey g\u0306 I\u0307\u0307") == "iki şey ğ İ\u0307");
  // Cyrillic (U+04D9, U+04D8) and turned e (U+01DD, U+018E)
  CHECK(normalize("gәlir Әli әә a aбә бәa ә Қазақ әлем ӘӘa \u01DD \u018E\u04D8") ==
        "gəlir Əli әә a aбə бəa ә Қазақ әлем ƏƏa ə ƏƏ");
  CHECK(normalize("Ⅷә ªә 中әq\u0301ә") == "Ⅷә ªə 中əq\u0301ә");
  CHECK(normalize("sür’ət mə`yus sənʼət m‘n m´n o′z oʻz a\u0328\u0301’b") ==
        "sür'ət mə'yus sən'ət m'n m'n o′z oʻz ą\u0301’b");
  CHECK(normalize("‘söz’ ’a` `b` 5’ci l’’l") == "‘söz’ ’a` `b` 5’ci l’’l");
  CHECK(normalize("gəlmiș Ș qıșlaq ȘAĞ IAȘI Iași gәlmiș ișə\u0327") ==
        "gəlmiş Ș qışlaq ŞAĞ IAȘI Iași gəlmiş işə\u0327");
  CHECK(normalize("İI Iı") == "İI Iı");
}

TEST_CASE("Case follows Azerbaijani only where it is asked for") {
  CHECK(normalize("İSTİ QIŞ Iı İi ƏLİ ӘLİ I\u0307", {.lowercase = true}) == "isti qış ıı ii əli əli i");
  CHECK(Normalizer::named("az-lower").json() == az_normalizer_json({.lowercase = true}));
  CHECK(Normalizer::named("az").json() == az_normalizer_json());
}

TEST_CASE("Each step of the normaliser is an option") {
  const std::string text = "i\u0307 e\u0301 aә a’b əș";
  const AzNormalizerOptions none = {
      .dotted_i = false, .nfc = false, .schwa = false, .apostrophe = false, .cedilla = false};
  const auto with = [&](bool AzNormalizerOptions::*step) {
    AzNormalizerOptions options = none;
    options.*step = true;
    return normalize(text, options);
  };
  CHECK(az_normalizer_json(none).is_null());
  CHECK(normalize(text, none) == text);
  CHECK(with(&AzNormalizerOptions::dotted_i) == "i e\u0301 aә a’b əș");
  CHECK(with(&AzNormalizerOptions::nfc) == "i\u0307 é aә a’b əș");
  CHECK(with(&AzNormalizerOptions::schwa) == "i\u0307 e\u0301 aə a’b əș");
  CHECK(with(&AzNormalizerOptions::apostrophe) == "i\u0307 e\u0301 aә a'b əș");
  CHECK(with(&AzNormalizerOptions::cedilla) == "i\u0307 e\u0301 aә a’b əş");
}

TEST_CASE("Letters in words are found by hand as by the regular expression") {
  const std::vector<std::string> parts = {"ә", "ә", "Ә", "ș", "Ș", "ə",      "ğ", "ı",    "a",    "б",   "中",
                                          "Ⅷ", "ª", " ", "-", "1", "\u0301", "ʼ", "\xD3", "\x99", "\xFF"};
  for (const auto* rules : {&text::detail::kCyrillicSchwas, &text::detail::kRomanianLetters}) {
    for (const text::detail::LetterInWords& rule : *rules) {
      const Regex regex(rule.pattern());
      for (std::uint64_t seed = 0; seed < 5000; ++seed) {
        std::string text;
        for (std::uint64_t i = 1; i <= random_bits(seed, 0) % 20; ++i)
          text += parts[random_bits(seed, i) % parts.size()];
        std::vector<std::pair<std::size_t, std::size_t>> by_hand, by_regex;
        rule.each_match(text, [&](std::size_t begin, std::size_t end) { by_hand.emplace_back(begin, end); });
        regex.each_match(text, [&](std::size_t begin, std::size_t end) { by_regex.emplace_back(begin, end); });
        if (by_hand != by_regex) FAIL(rule.letter << " differs in \"" << text << "\", seed " << seed);
      }
    }
  }
  CHECK(text::detail::find_letter_in_words(text::detail::kRomanianLetters[1].pattern()) ==
        &text::detail::kRomanianLetters[1]);
  CHECK(text::detail::find_letter_in_words("ә") == nullptr);
}

TEST_CASE("Long runs of letters take linear time") {
  const Normalizer normalizer = Normalizer::named("az");
  for (const char* unit : {"ә", "б", "aә", "ș", "’", "a’"}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    CHECK(normalizer.normalize(text + "әș").size() <= text.size() + 4);
  }
}
