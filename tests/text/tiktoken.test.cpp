#include <ilme/text/tiktoken.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/text/tokenizer.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Ids = std::vector<TokenId>;

namespace {

std::string base64(std::string_view bytes) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += i + j > bytes.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
  }
  return out;
}

/// 256 bytes and then "aa", "aaa", "ab", "abc" as 256 to 259.
std::string small_file() {
  std::string text;
  int rank = 0;
  for (; rank < 256; ++rank)
    text += base64(std::string(1, static_cast<char>(rank))) + " " + std::to_string(rank) + "\n";
  for (const char* token : {"aa", "aaa", "ab", "abc"}) text += base64(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

Tokenizer load(const std::string& text) {
  const test::TemporaryFolder folder;
  write_file(folder / "t.tiktoken", text);
  return Tokenizer::load(folder / "t.tiktoken");
}

void check_refused(const std::string& text, const std::string& part) {
  CHECK_THROWS_MATCHES(load(text), InputError,
                       MessageMatches(ContainsSubstring("t.tiktoken") && ContainsSubstring(part)));
}

}  // namespace

TEST_CASE("A tiktoken file merges by rank, leftmost first") {
  const Tokenizer tokenizer = load(small_file());
  CHECK(tokenizer.encode("aa") == Ids{256});
  CHECK(tokenizer.encode("aaa") == Ids{257});
  CHECK(tokenizer.encode("aaaa") == Ids{256, 256});
  CHECK(tokenizer.encode("aaaaa") == Ids{256, 257});
  CHECK(tokenizer.encode("aab") == Ids{256, 'b'});  // aa has the smaller rank
  CHECK(tokenizer.encode("xabc abc") == Ids{'x', 259, ' ', 259});
  CHECK(load(small_file() + "\n").encode("aaa") == Ids{257});
  std::string crlf = small_file();
  for (std::size_t i = 0; (i = crlf.find('\n', i)) != std::string::npos; i += 2) crlf.insert(i, "\r");
  CHECK(load(crlf).fingerprint() == tokenizer.fingerprint());
  const test::TemporaryFolder folder;
  tokenizer.save(folder.path());
  const Tokenizer converted = Tokenizer::load(folder.path());
  for (const char* text : {"aaaa aab xabc", "abcabcab aaa"}) CHECK(converted.encode(text) == tokenizer.encode(text));
}

TEST_CASE("A broken tiktoken file is refused with its line") {
  const std::string good = small_file();
  check_refused(good + "@@@@ 260\n", "line 261: \"@@@@\" is not base64");
  check_refused(good + "YQ= 260\n", "line 261");
  check_refused(good + "YWI\n", "line 261: there is no rank");
  check_refused(good + base64("xyz") + " 26x\n", "line 261: the rank is \"26x\"");
  check_refused(good + base64("xyz") + " 99999999999\n", "line 261: the rank");
  check_refused(good + base64("xyz") + " 259\n", "line 261: rank 259 is there twice");
  check_refused(good + base64("abc") + " 260\n", "line 261: the token of line 260 again");
  check_refused(good.substr(good.find('\n') + 1), "byte 0x00");
  check_refused("<!doctype html>\n", "line 1");
  check_refused("", "no tokens");
}

TEST_CASE("Reference: tiktoken files good and broken") {
  const auto folder = test::shared_path("cases/tok-tiktoken-broken-file");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  for (const char* name : {"good.tiktoken", "crlf.tiktoken", "blank_last_line.tiktoken"}) {
    for (const std::string& pattern : {std::string("llama3"), expected.at("pat_str").get<std::string>()}) {
      const Tokenizer tokenizer = Tokenizer::load(*folder / name, pattern);
      for (const Json& entry : expected.at("cases")) {
        CHECK(tokenizer.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<Ids>());
      }
    }
  }
  for (const Json& name : expected.at("must_refuse")) {
    const auto file = name.get<std::string>();
    CHECK_THROWS_MATCHES(
        Tokenizer::load(*folder / file), InputError,
        MessageMatches(ContainsSubstring(file) && (ContainsSubstring("line ") || ContainsSubstring("byte 0xC9"))));
  }
}
