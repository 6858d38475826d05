#include <ilme/text/tokenizer.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Ids = std::vector<TokenId>;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

// Ids by tokenizers 0.23.3.
TEST_CASE("Encoding gives Hugging Face's ids") {
  using namespace std::string_literals;
  for (const char* pattern : {"llama3", "gpt2"}) {
    const Tokenizer tokenizer = test::small_tokenizer("<|endoftext|>", pattern);
    CHECK(tokenizer.encode("dənizdə qızıl üzüm") == Ids{284, 267, 221, 286, 257, 76, 221, 289});
    CHECK(tokenizer.encode("babası 1234 söz!\n\n  ışıq's") ==
          Ids{279, 83, 257, 221, 17, 18, 19, 20, 221, 287, 1, 199, 199, 221, 221, 288, 7, 83});
    CHECK(tokenizer.encode("<|endoftext|>nənə<|endoftext|>", Special::allow) == Ids{0, 280, 0});
    CHECK(tokenizer.encode("İşığın 😀 \0 sürəti"s) ==
          Ids{129, 109, 262, 257, 129, 254, 257, 78, 221, 173, 254, 247, 223, 221, 189, 221, 83, 261, 82, 258, 84, 73});
    CHECK(tokenizer.encode("").empty());
  }
}

TEST_CASE("Special tokens are text unless allowed") {
  const Tokenizer tokenizer = test::small_tokenizer("<|a|>,<|a|><|b|>");
  CHECK(tokenizer.encode("x<|a|><|b|>", Special::allow) == Ids{*tokenizer.token_to_id("x"), 1});  // the longest
  CHECK(tokenizer.encode("<|a|>y", Special::allow) == Ids{0, *tokenizer.token_to_id("y")});
  const Ids as_text = tokenizer.encode("<|a|>");
  CHECK(as_text.size() == 5);
  CHECK(tokenizer.decode(as_text) == "<|a|>");
  CHECK(std::none_of(as_text.begin(), as_text.end(), [&](TokenId id) { return tokenizer.is_special(id); }));
}

TEST_CASE("Decoding gives back any bytes, for any number of threads") {
  for (const char* pattern : {"llama3", "gpt2", "qwen2", "\\S+"}) {
    const Tokenizer tokenizer = test::small_tokenizer("llama3", pattern);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      std::string text;
      for (std::uint64_t i = 0, size = random_bits(seed) % 200; i < size; ++i) {
        text += static_cast<char>(random_bits(seed, i) >> 17);
      }
      REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
      REQUIRE(tokenizer.decode(tokenizer.encode(text, Special::allow)) == text);
    }
    std::string text;
    for (std::uint64_t i = 0; i < 100000; ++i) {
      text += test::kSmallWords[random_bits(1, i) % 12];
      text += " \n <|eot_id|>"[random_bits(2, i) % 3 == 0 ? 1 : 0];
      if (i % 1000 == 0) text += "<|eot_id|>";
    }
    const Ids ids = tokenizer.encode(text, Special::allow, 1);
    CHECK(tokenizer.encode(text, Special::allow, 3) == ids);
    CHECK(std::count(ids.begin(), ids.end(), *tokenizer.token_to_id("<|eot_id|>")) == 100);
    CHECK(tokenizer.decode(ids) == text);
    CHECK(tokenizer.encode(text, Special::text, 2) == tokenizer.encode(text, Special::text, 1));
  }
}

namespace {

/// By definition: the most urgent merge, leftmost, again and again.
Ids merge_plainly(const TokenizerModel& model, std::string_view piece) {
  Ids ids;
  for (const char c : piece) {
    for (TokenId id = 0; id < model.tokens.size(); ++id) {
      if (model.tokens[id] == std::string(1, c)) ids.push_back(id);
    }
  }
  for (bool merged = true; merged;) {
    merged = false;
    for (const Merge& merge : model.merges) {
      for (std::size_t j = 0; j + 1 < ids.size() && !merged; ++j) {
        if (ids[j] != merge.left || ids[j + 1] != merge.right) continue;
        ids[j] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(j) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("Any list of merges is applied as defined, in any order") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    // The merges may need tokens that later ones make, make a token in several ways, or be out of reach.
    TokenizerModel model;
    for (int byte = 0; byte < 256; ++byte) model.tokens.push_back(std::string(1, static_cast<char>(byte)));
    const std::string_view letters = seed % 3 == 0 ? "ab" : "abc";
    for (TokenId id = 0; id < 40; ++id) {
      std::string bytes;
      for (std::uint64_t i = 0; i < 2 + random_bits(seed, id) % 4; ++i) {
        bytes += letters[random_bits(seed, id, i) % letters.size()];
      }
      if (std::find(model.tokens.begin(), model.tokens.end(), bytes) == model.tokens.end())
        model.tokens.push_back(bytes);
    }
    for (TokenId left = 'a'; left < model.tokens.size(); ++left) {
      for (TokenId right = 'a'; right < model.tokens.size(); ++right) {
        const auto result =
            std::find(model.tokens.begin(), model.tokens.end(), model.tokens[left] + model.tokens[right]);
        if (result == model.tokens.end() || random_bits(seed, left, right) % 4 == 0) continue;
        model.merges.push_back({left, right, static_cast<TokenId>(result - model.tokens.begin())});
      }
    }
    std::vector<std::uint64_t> order(model.merges.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      // In training the shorter results come first; here sometimes, here not.
      const std::uint64_t length = seed % 2 == 0 ? model.tokens[model.merges[i].result].size() : 0;
      order[i] = length << 40 | (random_bits(seed, 7, i) & 0xFFFFFF) << 16 | i;
    }
    std::sort(order.begin(), order.end());
    std::vector<Merge> merges;
    for (const std::uint64_t entry : order) merges.push_back(model.merges[entry & 0xFFFF]);
    model.merges = merges;
    const BpeEncoder encoder(model);
    BpeEncoder::Scratch scratch;
    for (std::uint64_t i = 0; i < 40; ++i) {
      std::string piece;
      for (std::uint64_t j = 0; j <= i; ++j) piece += letters[random_bits(seed, 99, i, j) % letters.size()];
      Ids ids;
      encoder.encode(piece, scratch, ids);
      CAPTURE(seed, piece);
      REQUIRE(ids == merge_plainly(model, piece));
    }
  }
}

TEST_CASE("The cache of words gives the same ids when it is too small for the text") {
  const TokenizerModel model = test::small_model("none");
  const BpeEncoder encoder(model);
  BpeEncoder::Scratch large, small(1), none(0);
  for (std::uint64_t i = 0; i < 60'000; ++i) {
    std::string piece = i % 2 == 0 ? "nənə" : "";
    for (std::uint64_t j = 0; j < i % 40; ++j) piece += "bnəaıştqz"[random_bits(3, i % 2 == 0 ? i : i % 100, j) % 13];
    Ids ids, small_ids, none_ids;
    encoder.encode(piece, large, ids);
    encoder.encode(piece, small, small_ids);
    encoder.encode(piece, none, none_ids);
    REQUIRE(small_ids == ids);
    REQUIRE(none_ids == ids);
  }
}

TEST_CASE("Pieces are encoded alike whether they are short, long or seen before") {
  const TokenizerModel model = test::small_model("none");
  const BpeEncoder encoder(model);
  BpeEncoder::Scratch scratch;
  std::string piece;
  for (std::uint64_t i = 0; i < 200; ++i) {
    piece += "bnəaıştqz"[random_bits(3, i) % 13];
    const Ids plain = merge_plainly(model, piece);
    for (int repeat = 0; repeat < 2; ++repeat) {
      Ids ids;
      encoder.encode(piece, scratch, ids);
      REQUIRE(ids == plain);
    }
  }
}

TEST_CASE("Tokens by id and by name") {
  const Tokenizer tokenizer = test::small_tokenizer("llama3");
  CHECK(tokenizer.vocabulary_size() == 295);
  CHECK(tokenizer.bos_id() == 0);
  CHECK(tokenizer.eos_id() == 1);
  CHECK(tokenizer.pad_id() == 5);
  CHECK(tokenizer.is_special(4));
  CHECK_FALSE(tokenizer.is_special(6));
  CHECK_FALSE(tokenizer.is_special(100000));
  CHECK(tokenizer.token_bytes(4) == "<|eot_id|>");
  CHECK(tokenizer.token_bytes(*tokenizer.token_to_id("dəniz")) == "dəniz");
  CHECK_FALSE(tokenizer.token_to_id("yox"));
  CHECK_THROWS_MATCHES(tokenizer.token_bytes(295), InputError, MessageMatches(ContainsSubstring("295")));
  CHECK_THROWS_AS(tokenizer.decode(Ids{1, 4000000000}), InputError);
  CHECK_FALSE(test::small_tokenizer("none").bos_id());
  CHECK(test::small_tokenizer("chatml").eos_id() == 0);
}

TEST_CASE("The fingerprint tells tokenizers apart and survives a file") {
  const Tokenizer tokenizer = test::small_tokenizer("llama3");
  const test::TemporaryFolder folder;
  tokenizer.save(folder.path());
  CHECK(Tokenizer::load(folder.path()).fingerprint() == tokenizer.fingerprint());
  CHECK(tokenizer.fingerprint().size() == 32);
  CHECK(test::small_tokenizer("llama3", "gpt2").fingerprint() != tokenizer.fingerprint());
  CHECK(test::small_tokenizer("chatml").fingerprint() != tokenizer.fingerprint());
}

TEST_CASE("Reference: long pieces") {
  const auto folder = test::shared_path("cases/tok-long-piece");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  const Tokenizer tokenizer = Tokenizer::load(*folder / "tokenizer.json");
  for (const Json& entry : expected.at("cases")) {
    INFO(entry.at("name"));
    std::string text;
    const auto repeat = entry.at("repeat").get<std::size_t>();
    if (entry.at("unit").is_null()) {
      std::uint32_t state = 12345;
      for (std::size_t i = 0; i < repeat; ++i) {
        state = (state * 1103515245U + 12345U) & 0x7FFFFFFFU;
        text += static_cast<char>('a' + (state >> 16) % 26);
      }
    } else {
      for (std::size_t i = 0; i < repeat; ++i) text += entry.at("unit").get<std::string>();
    }
    const Ids ids = tokenizer.encode(text);
    CHECK(ids.size() == entry.at("n_ids").get<std::size_t>());
    CHECK(Ids(ids.begin(), ids.begin() + 8) == entry.at("first_ids").get<Ids>());
    CHECK(Ids(ids.end() - 8, ids.end()) == entry.at("last_ids").get<Ids>());
    CHECK(tokenizer.decode(ids) == text);
  }
}

TEST_CASE("A megabyte without a split point") {
  const Tokenizer tokenizer = test::small_tokenizer("none");
  std::string text;
  for (int i = 0; i < 250000; ++i) text += "baba";
  CHECK(tokenizer.encode(text) == Ids(250000, *tokenizer.token_to_id("baba")));
  CHECK(tokenizer.encode(std::string(1'000'000, 'x')).size() == 1'000'000);
}

TEST_CASE("Reference: ill-formed UTF-8 comes back byte by byte") {
  const auto folder = test::shared_path("cases/tok-invalid-unicode");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  for (const Json& entry : expected.at("raw_files")) {
    INFO(entry.at("name"));
    const std::string bytes = read_file(*folder / entry.at("file").get<std::string>());
    REQUIRE(bytes == from_hex(entry.at("hex").get<std::string>()));
    CHECK(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
    const auto replaced = entry.at("text_after_replacement").get<std::string>();
    CHECK(tokenizer.encode(replaced) == entry.at("ids_of_replaced_text").get<Ids>());
  }
  for (const Json& row : expected.at("jsonl")) {
    CHECK(tokenizer.encode(from_hex(row.at("utf8_hex").get<std::string>())) == row.at("ids").get<Ids>());
  }
}
