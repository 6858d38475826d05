#include <ilme/text/regex.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_all.hpp>

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Pieces = std::vector<std::string>;

namespace {

Pieces matches(const std::string& pattern, std::string_view text) {
  Pieces out;
  Regex(pattern).each_match(
      text, [&](std::size_t begin, std::size_t end) { out.emplace_back(text.substr(begin, end - begin)); });
  return out;
}

}  // namespace

// Matches by tokenizers 0.23.3.
TEST_CASE("Patterns mean what they mean in Oniguruma") {
  CHECK(matches("\\h+", "Bakı 2026 ağ") == Pieces{"Ba", "2026", "a"});  // hexadecimal digits
  CHECK(matches("[\\H]+", "ab-x1") == Pieces{"-x"});
  CHECK(matches("(?m)a.b", "a\nb") == Pieces{"a\nb"});  // what others call (?s)
  CHECK(matches("a.b", "a\nb").empty());
  CHECK(matches("^.$", "a\nb\n") == Pieces{"a", "b"});
  CHECK(matches("a(?i)b|c", "ab aB aC C") == Pieces{"ab", "aB", "aC"});  // the alternatives are within (?i: )
  CHECK(matches("a{,2}b", "aaab") == Pieces{"aab"});
  CHECK(matches("a{2}?b", "aab ab b") == Pieces{"aab", "b", "b"});
  CHECK(matches("(?:a{1,2}+)b", "aaab") == Pieces{"aaab"});  // not possessive
  CHECK(matches("a++b|a", "aab aa") == Pieces{"aab", "a", "a"});
  CHECK(matches("a{x}", "a{x}") == Pieces{"a{x}"});
  CHECK(matches("\\G\\w", "ab c") == Pieces{"a", "b"});
  CHECK(matches("a\\Kb", "ab") == Pieces{"b"});
  CHECK(matches("x\\v", "x\v") == Pieces{"x\v"});
  CHECK(matches("\\u0259\\x41\\x{259}", "əAə") == Pieces{"əAə"});
  CHECK(matches("\\R", "\r\n\x0B\u2028") == Pieces{"\r\n", "\x0B", "\u2028"});
  CHECK(matches("\\O", "\n") == Pieces{"\n"});
  CHECK(matches("\\w+", "²a\u200Db\u0301_") == Pieces{"²a", "b\u0301_"});
  CHECK(matches("[\\w]+", "²a") == Pieces{"a"});
  CHECK(matches("\\b\\w", "ab ə") == Pieces{"a", "ə"});
  CHECK(matches("[a-z&&[^aeiou]]+", "kitab") == Pieces{"k", "t", "b"});
  CHECK(matches("[a[0-9]]+", "a1b") == Pieces{"a1"});
  CHECK(matches("[]a]+", "]a") == Pieces{"]a"});
  CHECK(matches("[[:punct:]]+", "a$!") == Pieces{"$!"});
  CHECK(matches("\\p{Punct}+", "a😀!") == Pieces{"!"});
  CHECK(matches("\\p{^L}+|\\p{Latin}", "a1б") == Pieces{"a", "1"});
  CHECK(matches("\\p{Lu}\\p{M}*", "I\u0307ə\u1C89") == matches("[\\p{Lu}]\\p{Mn}*", "I\u0307ə\u1C89"));
  CHECK(matches("(?i:\\p{Lu})", "aA") == Pieces{"A"});
  CHECK(matches("(?i:k)", "kK\u212A") == Pieces{"k", "K", "\u212A"});
  CHECK(matches("(?x) a b # c", "ab") == Pieces{"ab"});
  CHECK(matches("(?<x>a|b)\\k<x>", "abb") == Pieces{"bb"});
  CHECK(matches("(?<=a|bc)d", "ad bcd") == Pieces{"d", "d"});
  CHECK(matches("x*", "axb") == Pieces{"", "x", ""});
  CHECK(matches("(?=a)", "aa") == Pieces{"", ""});
  CHECK(matches("(?=a)(?:[abc]{2})?a", "_aK") == Pieces{"a"});  // PCRE2 10.42 by itself misses it
  CHECK(matches("a",
                "a\xFF"
                "a") == Pieces{"a", "a"});
}

TEST_CASE("Patterns that cannot be reproduced are refused by name") {
  const auto check = [](const std::string& pattern, const std::string& part) {
    INFO(pattern);
    CHECK_THROWS_MATCHES(Regex(pattern), InputError,
                         MessageMatches(ContainsSubstring(pattern) && ContainsSubstring(part)));
  };
  check("(a", "without an end");
  check("a)", "unmatched");
  check("[a", "without an end");
  check("*a", "nothing to repeat");
  check("\\", "backslash");
  check("\\p{Foo}", "Foo");
  check("[[:foo:]]", "foo");
  check("\\X", "segments");
  check("(?~a)", "unknown kind of group");
  check("(?s).", "unknown kind of group");
  check("(*FAIL)", "callout");
  check("(?i:ss)", "without regard to case");
  check("(?i:ß)", "without regard to case");
  check("(?<n>a)(b)", "names");
  check("\\cA", "control");
  check("[b-a]", "range");
  check("(?<=a+)b", "lookbehind");
  check(std::string(400, '('), "groups deep");
  check(std::string(400, '['), "deep");
  CHECK_THROWS_AS(Regex("a\xFF"), InputError);
}

TEST_CASE("A pattern that backtracks without end is an error") {
  CHECK_THROWS_MATCHES(matches("(a+)+b|(a|aa)+$", std::string(5000, 'a') + "c"), RunError,
                       MessageMatches(ContainsSubstring("(a+)+b")));
  // A long match needs no stack.
  CHECK(matches("(?:a|b)+", std::string(1000000, 'a')).size() == 1);
}
