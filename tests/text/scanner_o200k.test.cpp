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
