#include <ilme/text/regex_literals.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

using namespace ilme::text;

TEST_CASE("What every match of a pattern needs is read from the pattern") {
  using Strings = std::vector<std::string>;
  const auto needed = [](const char* pattern) { return ilme::text::detail::LiteralFinder(pattern).find(); };
  CHECK(needed("abc") == Strings{"abc"});
  CHECK(needed("ab+c") == Strings{"ab"});
  CHECK(needed("ab?c") == Strings{"a"});
  CHECK(needed("xab*") == Strings{"xa"});
  CHECK(needed("a{0,2}bc") == Strings{"bc"});
  CHECK(needed("a\\.b") == Strings{"a.b"});
  CHECK(needed("\\s+ə\\p{L}*") == Strings{"ə"});
  CHECK(needed("(?:x|y)\\G\\Kә") == Strings{"ә"});
  CHECK(needed("[’`](?=\\p{L})") == Strings{"’", "`"});
  CHECK(needed("[ab]+c") == Strings{"c"});
  CHECK(needed("^a.b$") == Strings{"a"});
  // Nothing is needed, or the pattern is not understood.
  for (const char* pattern :
       {"",      "a|b",    "a*",     "(a)",   "[^a]",  "[a-c]",   "\\p{L}", "(?i)a",   "(?i)(?#)a",     "a(?#(",
        "\\x61", "[a[b]]", "[a&&b]", "[]a]",  "[^]a]", "\\Qa\\E", "a{,",    "(*UCP)a", "(?<n>.)\\k<n>", "a)",
        "(a",    "[a",     "a\\",    "\\pLa", ".?"}) {
    CAPTURE(pattern);
    CHECK(needed(pattern).empty());
  }
}
