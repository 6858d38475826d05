#include <ilme/text/normalizer.hpp>

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_all.hpp>

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Normalizer from_text(const std::string& json) { return Normalizer::from_json(parse_json(json, "test"), "test"); }

}  // namespace

// Results by tokenizers 0.23.3.
TEST_CASE("Normalisation forms") {
  const auto forms = [](std::string_view text) {
    std::vector<std::string> out;
    for (const char* name : {"nfc", "nfd", "nfkc", "nfkd"}) out.push_back(Normalizer::named(name).normalize(text));
    return out;
  };
  using Four = std::vector<std::string>;
  CHECK(forms("") == Four{"", "", "", ""});
  CHECK(forms("qız 12") == Four{"qız 12", "qız 12", "qız 12", "qız 12"});
  CHECK(forms("\u0130\u015E") == Four{"\u0130\u015E", "I\u0307S\u0327", "\u0130\u015E", "I\u0307S\u0327"});
  CHECK(forms("I\u0307S\u0327") == Four{"\u0130\u015E", "I\u0307S\u0327", "\u0130\u015E", "I\u0307S\u0327"});
  CHECK(forms("\uFB01i\u0323\u0307") ==
        Four{"\uFB01\u1ECB\u0307", "\uFB01i\u0323\u0307", "fi\u1ECB\u0307", "fii\u0323\u0307"});
  CHECK(forms("a\u0301\u0323") == Four{"\u1EA1\u0301", "a\u0323\u0301", "\u1EA1\u0301", "a\u0323\u0301"});  // reordered
  CHECK(forms("a\u0334\u0301") == Four{"\u00E1\u0334", "a\u0334\u0301", "\u00E1\u0334", "a\u0334\u0301"});
  CHECK(forms("\u1112\u1161\u11AB") == Four{"\uD55C", "\u1112\u1161\u11AB", "\uD55C", "\u1112\u1161\u11AB"});
  CHECK(forms("\uD558\u11AB") == Four{"\uD55C", "\u1112\u1161\u11AB", "\uD55C", "\u1112\u1161\u11AB"});
  CHECK(forms("\u0F73") == Four{"\u0F71\u0F72", "\u0F71\u0F72", "\u0F71\u0F72", "\u0F71\u0F72"});
  CHECK(forms("\u0958\u212B") ==
        Four{"\u0915\u093C\u00C5", "\u0915\u093CA\u030A", "\u0915\u093C\u00C5", "\u0915\u093CA\u030A"});
  CHECK(forms("\u0390\u01E0") ==
        Four{"\u0390\u01E0", "\u03B9\u0308\u0301A\u0307\u0304", "\u0390\u01E0", "\u03B9\u0308\u0301A\u0307\u0304"});
  // Newer than the data that Hugging Face has: U+32FF of Unicode 12.1, U+11935 U+11930 of 13.
  CHECK(forms("\u32FF") == Four{"\u32FF", "\u32FF", "\u32FF", "\u32FF"});
  CHECK(forms("\U00011938").front() == "\U00011938");
  CHECK(forms("\U00011938")[1] == "\U00011938");
  // Ill-formed bytes stay and separate.
  CHECK(forms("e\xFF\u0301\xCC") == Four{"e\xFF\u0301\xCC", "e\xFF\u0301\xCC", "e\xFF\u0301\xCC", "e\xFF\u0301\xCC"});
}

TEST_CASE("Casing is the same in every locale") {
  const Normalizer lowercase = from_text(R"({"type":"Lowercase"})");
  CHECK(lowercase.normalize("İIıi QIZIL ƏÇ") == "i\u0307iıi qizil əç");
  CHECK(lowercase.normalize("ΟΔΟΣ ǅ Ⰰ ẞ \u1F88") == "οδοσ ǆ ⰰ ß \u1F80");
  CHECK(lowercase.normalize("A\xFF\xC4Z") == "a\xFF\xC4z");
}

TEST_CASE("Strip, StripAccents, Prepend, Replace") {
  CHECK(from_text(R"({"type":"Strip","strip_left":true,"strip_right":true})").normalize(" \u3000\t a b \u2028\n") ==
        "a b");
  CHECK(from_text(R"({"type":"Strip","strip_left":true,"strip_right":false})").normalize("  a ") == "a ");
  CHECK(from_text(R"({"type":"Strip","strip_left":false,"strip_right":true})").normalize("  a ") == "  a");
  CHECK(from_text(R"({"type":"Strip","strip_left":true,"strip_right":true})").normalize(" \n ").empty());
  CHECK(from_text(R"({"type":"StripAccents"})").normalize("I\u0307\u0410\u0483é\u20DD") == "I\u0410é");
  const Normalizer prepend = from_text(R"({"type":"Prepend","prepend":"▁"})");
  CHECK(prepend.normalize("söz") == "▁söz");
  CHECK(prepend.normalize("").empty());
  CHECK(from_text(R"({"type":"Replace","pattern":{"String":"''"},"content":"\""})").normalize("''x'''") == "\"x\"'");
  CHECK(from_text(R"({"type":"Replace","pattern":{"String":"."},"content":""})").normalize("a.b") == "ab");
  CHECK(from_text(R"({"type":"Replace","pattern":{"String":""},"content":"-"})").normalize("aə") == "-a-ə-");
  CHECK(from_text(R"({"type":"Replace","pattern":{"Regex":" {2,}|x*"},"content":"_"})").normalize("a   xb") ==
        "_a__b_");
  CHECK(from_text(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"Sequence","normalizers":
      [{"type":"Lowercase"}]},{"type":"StripAccents"}]})")
            .normalize("İŞIQ Ərik") == "isiq ərik");
}

TEST_CASE("Normalised text knows where it comes from") {
  const auto ranges = [](const Normalizer& normalizer, std::string_view text) {
    const AlignedText out = normalizer.normalize(AlignedText(text, 100));
    CHECK(out.text == normalizer.normalize(text));
    REQUIRE(out.ranges.size() == out.text.size());
    return out.ranges;
  };
  using Ranges = std::vector<SourceRange>;
  CHECK(ranges({}, "aə") == Ranges{{100, 101}, {101, 102}, {102, 103}});
  CHECK(ranges(Normalizer::named("nfd"), "aé") == Ranges{{100, 101}, {101, 103}, {101, 103}, {101, 103}});
  CHECK(ranges(Normalizer::named("nfc"), "e\u0301a") == Ranges{{100, 101}, {100, 101}, {103, 104}});
  CHECK(ranges(Normalizer::named("nfkc"), "\uFB01") == Ranges{{100, 103}, {100, 103}});
  CHECK(ranges(from_text(R"({"type":"Prepend","prepend":"> "})"), "ab") ==
        Ranges{{100, 101}, {100, 101}, {100, 101}, {101, 102}});
  CHECK(ranges(from_text(R"({"type":"Replace","pattern":{"String":"ab"},"content":"xyz"})"), "-ab-") ==
        Ranges{{100, 101}, {102, 103}, {102, 103}, {102, 103}, {103, 104}});
  CHECK(ranges(from_text(R"({"type":"Strip","strip_left":true,"strip_right":true})"), "  a ") == Ranges{{102, 103}});
  CHECK(ranges(from_text(R"({"type":"Lowercase"})"), "Bİ") == Ranges{{100, 101}, {101, 103}, {101, 103}, {101, 103}});
}

TEST_CASE("Normalisers that are not supported are refused by name") {
  const auto check = [](const std::string& json, const std::string& part) {
    CHECK_THROWS_MATCHES(from_text(json), InputError,
                         MessageMatches(ContainsSubstring("test") && ContainsSubstring(part)));
  };
  check(R"({"type":"Nmt"})", "Nmt");
  check(R"({"type":"Precompiled","precompiled_charsmap":"AA=="})", "Precompiled");
  check(R"({"type":"BertNormalizer"})", "BertNormalizer");
  check(R"({"type":"ByteLevel"})", "ByteLevel");
  check(R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]})", "Nmt");
  check(R"({"type":"Sequence","normalizers":{}})", "normalizers");
  check(R"({"type":"Sequence"})", "normalizers");
  check(R"({"type":"NFC","form":1})", "form");
  check(R"({"type":"Strip","strip_left":true})", "strip_right");
  check(R"({"type":"Strip","strip_left":true,"strip_right":1})", "strip_right");
  check(R"({"type":"Replace","pattern":{"Regex":"(a"},"content":""})", "(a");
  check(R"({"type":"Replace","pattern":{"Glob":"a"},"content":""})", "String");
  check(R"({"type":"Replace","pattern":"a","content":""})", "pattern");
  check(R"({"type":"Replace","pattern":{"String":"a"}})", "content");
  check(R"("NFC")", "NFC");
  check(R"({"type":7})", "type");
  std::string deep = R"({"type":"NFC"})";
  for (int i = 0; i < 300; ++i) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
  check(deep, "deep");
  CHECK_THROWS_AS(Normalizer::named("nfx"), InputError);
  CHECK(Normalizer::named("none").empty());
  CHECK(Normalizer::from_json(nullptr, "test").empty());
  CHECK(from_text(R"({"type":"Sequence","normalizers":[]})").empty());
}
