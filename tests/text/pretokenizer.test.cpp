#include <ilme/text/pretokenizer.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>

using namespace ilme;
using namespace ilme::text;

namespace {

std::vector<std::string> split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string> pieces;
  pre_tokenizer.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

using Pieces = std::vector<std::string>;

/// Random text that is rich in what the patterns tell apart; some of it ill-formed when `broken`.
std::string random_text(std::uint64_t seed, bool broken) {
  static const std::vector<std::string> parts = {
      "a",  "Z",      "ə",      "ſ", "'", "'s",     "'LL", "'v", "1", "²",      "٣", " ", "  ",   "\n",  "\r",
      "\t", "\u00A0", "\u3000", "!", "-", "\u0301", "中",  "😀",  "’", "\u180E", "/", "ʼ", "\xC9", "\x80"};
  std::string text;
  const std::uint64_t count = random_bits(seed, 0) % 24;
  for (std::uint64_t i = 1; i <= count; ++i) text += parts[random_bits(seed, i) % (parts.size() - (broken ? 0 : 2))];
  return text;
}

}  // namespace

// The expected pieces are those of tokenizers 0.23.3.
TEST_CASE("The scanners split as the patterns do") {
  const std::string text = "I'LL'ſ  Bakı-dan\u00A02026-cı \t\n\n x!?\r\n\u3000ə\u0301²";
  CHECK(split(PreTokenizer::named("llama3"), text) == Pieces{"I", "'LL", "'ſ", " ", " Bakı", "-dan", "\u00A0", "202",
                                                             "6", "-cı", " \t\n\n", " x", "!?\r\n", "\u3000ə", "\u0301",
                                                             "²"});
  CHECK(split(PreTokenizer::named("qwen2"), text) == Pieces{"I", "'LL", "'ſ", " ", " Bakı", "-dan", "\u00A0", "2", "0",
                                                            "2", "6", "-cı", " \t\n\n", " x", "!?\r\n", "\u3000ə",
                                                            "\u0301", "²"});
  CHECK(split(PreTokenizer::named("gpt2"), text) == Pieces{"I",  "'",   "LL",     "'",      "ſ", " ",      " Bakı",
                                                           "-",  "dan", "\u00A0", "2026",   "-", "cı",     " \t\n\n",
                                                           " x", "!?",  "\r\n",   "\u3000", "ə", "\u0301", "²"});
  CHECK(split(PreTokenizer::named("llama3"), "a   ") == Pieces{"a", "   "});
  CHECK(split(PreTokenizer::named("gpt2"), "\n\nX") == Pieces{"\n", "\n", "X"});
  CHECK(split(PreTokenizer::named("llama3"), "").empty());
}

TEST_CASE("The scanners and PCRE2 agree on random text") {
  for (const auto& [name, pattern] :
       {std::pair("llama3", kLlama3Pattern), std::pair("qwen2", kQwen2Pattern), std::pair("gpt2", kGpt2Pattern),
        std::pair("llama3", kCl100kPattern), std::pair("o200k", kO200kPattern), std::pair("az", kAzPattern)}) {
    const PreTokenizer scanner = PreTokenizer::named(name);
    const PreTokenizer regex = PreTokenizer::named("(?:" + std::string(pattern) + ")");
    for (std::uint64_t seed = 0; seed < 20000; ++seed) {
      const std::string text = random_text(seed, false);
      if (split(scanner, text) != split(regex, text)) FAIL(name << " differs on \"" << text << "\", seed " << seed);
    }
  }
}

TEST_CASE("The scanners and PCRE2 agree on long text, which is scanned by windows") {
  // Mostly ordinary words, so that windows are used whole; the rest stands at every place of them.
  static const std::vector<std::string> ordinary = {"kitab", "Bakı", "söz", "ŞƏHƏR", "Əli", "ev", " ", " ", " ", " ",
                                                    ", ",    ". ",   "\n",  "2026",  "15",  ";",  "(", ")", "a", "B"};
  for (const char* name : {"llama3", "qwen2", "gpt2", "o200k", "az"}) {
    const PreTokenizer scanner = PreTokenizer::named(name);
    const Regex regex(scanner.signature()[0]);
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
      std::string text;
      for (std::uint64_t i = 0; i < 60; ++i) {
        const std::uint64_t bits = random_bits(seed, 5, i);
        text += bits % 16 < seed % 4 ? random_text(bits, false) : ordinary[(bits >> 8) % ordinary.size()];
      }
      Pieces expected;
      regex.split(text, [&](std::string_view piece) { expected.emplace_back(piece); });
      if (split(scanner, text) != expected) FAIL(name << " differs on \"" << text << "\", seed " << seed);
    }
  }
}

TEST_CASE("An ill-formed byte is a character of no class for the patterns with cases") {
  for (const char* name : {"o200k", "az"}) {
    const PreTokenizer scanner = PreTokenizer::named(name);
    CHECK(split(scanner, "a\xFF\x62\xC9") == Pieces{"a", "\xFF\x62", "\xC9"});
    CHECK(split(scanner, "\xE2\x80 \xFF\xC9") == Pieces{"\xE2\x80", " \xFF\xC9"});
  }
}

TEST_CASE("Long runs take every pattern linear time") {
  std::string text;
  for (const char* unit : {"A", "中", "a-", "'", "\u0301", "1", "中A"}) {
    const std::size_t start = text.size();
    while (text.size() < start + 300000) text += unit;
  }
  for (const char* name : {"llama3", "qwen2", "gpt2", "o200k", "az"}) {
    std::size_t size = 0;
    PreTokenizer::named(name).split(text, [&](std::string_view piece) { size += piece.size(); });
    CHECK(size == text.size());
  }
}

TEST_CASE("Pieces together are the text, whatever its bytes") {
  for (const char* pattern : {"llama3", "qwen2", "gpt2", "o200k", "az", "[aə]+|\\d", "x*"}) {
    const PreTokenizer pre_tokenizer = PreTokenizer::named(pattern);
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      const std::string text = random_text(seed, true);
      std::string joined;
      for (const std::string& piece : split(pre_tokenizer, text)) {
        REQUIRE_FALSE(piece.empty());
        joined += piece;
      }
      REQUIRE(joined == text);
    }
  }
}

TEST_CASE("Any other pattern keeps matches and what lies between them") {
  CHECK(split(PreTokenizer::named("\\d+"), "ab12c3") == Pieces{"ab", "12", "c", "3"});
  CHECK(split(PreTokenizer::named("^a"), "a\na") == Pieces{"a", "\n", "a"});  // lines, as in Hugging Face's engine
  CHECK(split(PreTokenizer::named("\\s+"), "a\u180E b") == Pieces{"a\u180E", " ", "b"});
  CHECK(split(PreTokenizer::named("[^\\s\\p{L}]+"), "\u1C89!? x") == Pieces{"\u1C89", "!?", " x"});
  CHECK(split(PreTokenizer::named("[^\\S\n]+"), "a\u180E \nb") == Pieces{"a\u180E", " ", "\nb"});
  CHECK(split(PreTokenizer::named("[\\P{L}-]+"), "\u1C89!?\u1C8A") == Pieces{"\u1C89", "!?", "\u1C8A"});
  CHECK(split(PreTokenizer::named("\\p{Latin}+"), "a\uA7DCəә") == Pieces{"a\uA7DCə", "ә"});  // new in Unicode 16
  CHECK(split(PreTokenizer::named("\\S+"), "a\xFF\xFE b") == Pieces{"a", "\xFF\xFE", " ", "b"});
  CHECK_THROWS_AS(PreTokenizer::named("(a"), InputError);
  CHECK_THROWS_AS(PreTokenizer::named(""), InputError);
}

TEST_CASE("Splits in a row, and none") {
  const PreTokenizer chain({Splitter("-"), Splitter(std::string(kGpt2Pattern))});
  CHECK(split(chain, "a b-c1") == Pieces{"a", " b", "-", "c", "1"});
  CHECK(split(PreTokenizer(), "a b") == Pieces{"a b"});
  CHECK(split(PreTokenizer(), "").empty());
}

TEST_CASE("Stretches split to the pieces of the whole") {
  for (const char* pattern : {"llama3", "qwen2", "gpt2", "o200k", "az", "[a ]+"}) {
    const PreTokenizer pre_tokenizer = PreTokenizer::named(pattern);
    std::size_t most = 0;
    for (std::uint64_t seed = 0; seed < 5000; ++seed) {
      const std::string text = random_text(2 * seed, true) + random_text(2 * seed + 1, true);
      for (const std::size_t size : {1, 7}) {
        const auto stretches = pre_tokenizer.stretches(text, size);
        most = std::max(most, stretches.size());
        Pieces pieces;
        for (const std::string_view stretch : stretches) {
          for (std::string& piece : split(pre_tokenizer, stretch)) pieces.push_back(std::move(piece));
        }
        if (pieces != split(pre_tokenizer, text)) FAIL(pattern << " differs on \"" << text << "\", seed " << seed);
      }
    }
    CHECK((most > 3) == (pattern[0] != '['));
  }
}
