#include <ilme/text/scanner_o200k.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_all.hpp>

using namespace ilme::text;

namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  scan_o200k(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

}  // namespace

// The expected pieces are those of tokenizers 0.23.3; tests/peers/compare_splits.py compares far more.
TEST_CASE("The scanner splits as GPT-4o's pattern does") {
  CHECK(split("I'LL go, BakıMetro'S DON'T ABCdef ABC's iPhone") ==
        Pieces{"I'LL", " go", ",", " Bakı", "Metro'S", " DON'T", " ABCdef", " ABC's", " i", "Phone"});
  CHECK(split("ʼAʼB'ſ 中AB中c ABʼC \u0301ABC \u0301's") ==
        Pieces{"ʼAʼ", "B'ſ", " 中AB中c", " ABʼ", "C", " \u0301", "ABC", " \u0301's"});
  CHECK(split("ǅabc aǅ ªºA\u0301bC!\u0301x") == Pieces{"ǅabc", " a", "ǅ", " ªºA\u0301b", "C", "!\u0301x"});
  CHECK(split("x/y//\n/z !\r\n//a  12345²Ⅷ") ==
        Pieces{"x", "/y", "//\n/", "z", " !\r\n//", "a", " ", " ", "123", "45²", "Ⅷ"});
  CHECK(split("\u00A0Ə\u2028a\u0085\n \n\tB  ") == Pieces{"\u00A0Ə", "\u2028a", "\u0085\n \n", "\tB", "  "});
  CHECK(split("").empty());
}

TEST_CASE("An ill-formed byte is a character of no class for the pattern o200k") {
  CHECK(split("a\xFF"
              "b\xC9") == Pieces{"a",
                                 "\xFF"
                                 "b",
                                 "\xC9"});
  CHECK(split("\xE2\x80 \xFF\xC9") == Pieces{"\xE2\x80", " \xFF\xC9"});
}

TEST_CASE("Long runs take the pattern o200k linear time") {
  std::string text;
  for (const char* unit : {"A", "中", "a-", "'", "\u0301", "1", "中A"}) {
    const std::size_t start = text.size();
    while (text.size() < start + 300000) text += unit;
  }
  std::size_t size = 0;
  scan_o200k(text, [&](std::string_view piece) { size += piece.size(); });
  CHECK(size == text.size());
}
