#include <ilme/text/scanner_az.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_all.hpp>

using namespace ilme::text;

namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  scan_az(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

}  // namespace

// The expected pieces are those of tokenizers 0.23.3; tests/peers/compare_splits.py compares far more.
TEST_CASE("The scanner for Azerbaijani keeps words with their suffixes") {
  CHECK(split("BMT-nin 2026-cı COVID-19-un (e-poçt-un) bir-bir-inə-də") ==
        Pieces{"BMT-nin", " 2026-cı", " COVID-19-un", " (", "e-poçt-un", ")", " bir-bir-inə", "-də"});
  CHECK(split("sür’ət sənʼət sur'ət-in 'söz' don't ’a' a’’b") ==
        Pieces{"sür’ət", " sənʼət", " sur'ət-in", " '", "söz", "'", " don't", " ’", "a", "'", " a", "’’", "b"});
  CHECK(split("BakıMetro AzTU ABŞın Wi-Fi-yə McDonald's ǅabǅ") ==
        Pieces{"Bakı", "Metro", " Az", "TU", " ABŞın", " Wi-Fi-yə", " Mc", "Donald's", " ǅab", "ǅ"});
  CHECK(split("15.2.3 01.02.2026 1078-40-cı 12345-ci 3,5 5-10 (7) $100 +5 -5 A-12345 SHA-256-nı B-1-2") ==
        Pieces{"15", ".2", ".3", " 01", ".02",   ".2026", " 1078",       "-40-cı", " 1234", "5-ci",
               " 3", ",5", " 5", "-10", " (",    "7",     ")",           " $",     "100",   " +",
               "5",  " -", "5",  " A",  "-1234", "5",     " SHA-256-nı", " B-1",   "-2"});
  CHECK(split("i\u0307ki ə\u0301 \u0301a !\u0301! a-\u0301 1-\u0301") ==
        Pieces{"i\u0307ki", " ə\u0301", " \u0301a", " !\u0301!", " a-\u0301", " 1-\u0301"});
  CHECK(split("   2026-cı  5\t6\n\n x!?\r\n\u00A07 ²-ci ٣٣٣٣٣") ==
        Pieces{"  ", " 2026-cı", " ", " 5", "\t", "6", "\n\n", " x", "!?\r\n", "\u00A0", "7", " ²-ci", " ٣٣٣٣", "٣"});
  CHECK(split("a-b-c-d a-1-b-c-d a-b-1 a--b a-, 'x 5-") ==
        Pieces{"a-b-c", "-d", " a-1-b-c", "-d", " a-b", "-1", " a", "--", "b", " a", "-,", " '", "x", " 5", "-"});
  CHECK(split("「söz」#teq @ad /yol -dən %-i 50%-ə") ==
        Pieces{"「söz", "」#", "teq", " @", "ad", " /", "yol", " -", "dən", " %-", "i", " 50", "%-", "ə"});
  CHECK(split("").empty());
}
