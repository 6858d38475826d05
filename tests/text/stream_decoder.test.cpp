#include <ilme/text/stream_decoder.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>

#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;

TEST_CASE("Streamed text is cut between characters only") {
  const Tokenizer tokenizer = test::small_tokenizer("llama3");
  const std::string text = "Dənizdə 😀 ışıq<|eot_id|>€";
  StreamDecoder decoder(tokenizer);
  std::string joined;
  for (const TokenId id : tokenizer.encode(text)) {
    const std::string part = decoder.push(id);
    CHECK(is_valid_utf8(part));
    joined += part;
  }
  CHECK(decoder.finish().empty());
  CHECK(joined == text);
}

TEST_CASE("A character waits for its last byte, a broken one becomes U+FFFD") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  const auto byte = [&](char c) { return *tokenizer.token_to_id(std::string(1, c)); };
  StreamDecoder decoder(tokenizer);
  CHECK(decoder.push(byte('\xF0')).empty());
  CHECK(decoder.push(byte('\x9F')).empty());
  CHECK(decoder.push(byte('\x98')).empty());
  CHECK(decoder.push(byte('\x80')) == "😀");
  CHECK(decoder.push(byte('\xC9')).empty());
  CHECK(decoder.push(byte('a')) == "\uFFFDa");
  CHECK(decoder.push(byte('\x99')) == "\uFFFD");
  CHECK(decoder.push(byte('\xED')).empty());
  CHECK(decoder.push(byte('\xA0')) == "\uFFFD\uFFFD");  // a surrogate can no longer be completed
  CHECK(decoder.push(byte('\xE2')).empty());
  CHECK(decoder.push(byte('\x82')).empty());
  CHECK(decoder.push(byte('b')) == "\uFFFDb");  // one for the start of a character
  CHECK(decoder.push(123456).empty());
  CHECK(decoder.push(byte('\xE2')).empty());
  CHECK(decoder.finish() == "\uFFFD");
  CHECK(decoder.finish().empty());
}

TEST_CASE("Whatever the ids, the output is valid UTF-8") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    StreamDecoder decoder(tokenizer);
    for (std::uint64_t i = 0; i < 30; ++i) {
      REQUIRE(is_valid_utf8(decoder.push(static_cast<TokenId>(random_bits(seed, i) % tokenizer.vocabulary_size()))));
    }
    REQUIRE(is_valid_utf8(decoder.finish()));
  }
}
