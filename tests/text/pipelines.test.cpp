// Whole pipelines against Hugging Face: tests/peers/make_tokenizer_fixtures.py made the reference.
#include <cstddef>
#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/text/tokenizer.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::text;
using Ids = std::vector<TokenId>;

namespace {

const Json& fixture() {
  static const Json json = read_json(ILME_SOURCE_DIR "/tests/text/fixtures/pipelines.json");
  return json;
}

Tokenizer load(const Json& file) {
  const test::TemporaryFolder folder;
  write_file(folder / "tokenizer.json", file.dump());
  return Tokenizer::load(folder.path());
}

Json with_pipeline(const Json& pipeline) {
  Json file = fixture().at("tokenizer");
  file["normalizer"] = pipeline.at("normalizer");
  file["pre_tokenizer"] = pipeline.at("pre_tokenizer");
  file["model"]["ignore_merges"] = pipeline.at("ignore_merges");
  return file;
}

}  // namespace

TEST_CASE("Pipelines give Hugging Face's ids and offsets") {
  const Json& texts = fixture().at("texts");
  for (const Json& pipeline : fixture().at("pipelines")) {
    const Tokenizer tokenizer = load(with_pipeline(pipeline));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      const Json& expected = pipeline.at("cases").at(i);
      INFO(pipeline.at("name") << ": " << text);
      CHECK(tokenizer.encode(text, Special::allow) == expected.at("ids").get<Ids>());
      CHECK(tokenizer.encode(text, Special::allow, 3) == expected.at("ids").get<Ids>());
      const EncodedText encoded = tokenizer.encode_with_offsets(text, Special::allow);
      CHECK(encoded.ids == expected.at("ids").get<Ids>());
      // Hugging Face gives whole characters.
      const auto is_bound = [&](std::size_t at) {
        return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
      };
      std::vector<std::size_t> whole;
      for (auto [begin, end] : encoded.ranges) {
        while (!is_bound(begin)) --begin;
        while (!is_bound(end)) ++end;
        whole.insert(whole.end(), {begin, end});
      }
      CHECK(whole == expected.at("offsets").get<std::vector<std::size_t>>());
    }
  }
}

TEST_CASE("Pipelines are written as they were read") {
  for (const Json& pipeline : fixture().at("pipelines")) {
    INFO(pipeline.at("name"));
    const Tokenizer tokenizer = load(with_pipeline(pipeline));
    const std::string written = tokenizer_json(tokenizer.model());
    const Tokenizer again = load(parse_json(written, "test"));
    CHECK(again.fingerprint() == tokenizer.fingerprint());
    CHECK(tokenizer_json(again.model()) == written);
    CHECK(again.model().normalizer.json() == pipeline.at("normalizer"));
    CHECK(again.model().pre_tokenizer.json() == pipeline.at("pre_tokenizer"));
  }
}

TEST_CASE("Long texts split alike for any number of threads") {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "Bakıda " + std::to_string(i * 37) + "  İlk söz;  ";
  for (const Json& pipeline : fixture().at("pipelines")) {
    INFO(pipeline.at("name"));
    const Tokenizer tokenizer = load(with_pipeline(pipeline));
    CHECK(tokenizer.encode(text, Special::allow, 3) == tokenizer.encode(text, Special::allow));
  }
}

TEST_CASE("Ids of ill-formed bytes have their own ranges") {
  for (const Json& pipeline : fixture().at("pipelines")) {
    INFO(pipeline.at("name"));
    const Tokenizer tokenizer = load(with_pipeline(pipeline));
    const std::string text = "a\xFF\xFE b\xC9 \xE4\xB8";
    const EncodedText encoded = tokenizer.encode_with_offsets(text);
    CHECK(encoded.ids == tokenizer.encode(text));
    for (const auto& [begin, end] : encoded.ranges) CHECK((begin <= end && end <= text.size()));
  }
  const Tokenizer tokenizer = load(with_pipeline(fixture().at("pipelines").at(0)));
  const auto ranges = tokenizer.encode_with_offsets("a\xFF\xC9").ranges;
  CHECK(ranges == std::vector<SourceRange>{{0, 1}, {1, 2}, {2, 3}});
}

TEST_CASE("The template of the post-processor, once") {
  Json file = with_pipeline(fixture().at("pipelines").at(2));
  const TokenId id = file.at("added_tokens").at(0).at("id").get<TokenId>();
  const auto special = [](const char* name) { return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; };
  const Json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       Json::array({{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}},
                    {{"type", "TemplateProcessing"},
                     {"single", Json::array({special("<|a|>"), sequence, special("<mask>")})},
                     {"pair", Json::array()},
                     {"special_tokens",
                      {{"<|a|>", {{"id", "<|a|>"}, {"ids", {id}}, {"tokens", {"<|a|>"}}}},
                       {"<mask>", {{"id", "<mask>"}, {"ids", {id + 1}}, {"tokens", {"<mask>"}}}}}}}})}};
  const Tokenizer tokenizer = load(file);
  const TokenId x = *tokenizer.token_to_id("x");
  CHECK(tokenizer.encode("x") == Ids{x});
  CHECK(tokenizer.encode_with_template("x") == Ids{id, x, id + 1});
  CHECK(tokenizer.encode_with_template("<|a|>x", Special::allow) == Ids{id, x, id + 1});
  CHECK(tokenizer.encode_with_template("<|a|>x").size() == tokenizer.encode("<|a|>x").size() + 2);
  CHECK(tokenizer.encode_with_template("") == Ids{id, id + 1});
  CHECK(tokenizer.decode(Ids{id, x, id + 1}) == "<|a|>x<mask>");
  CHECK(tokenizer.decode(Ids{id, x, id + 1}, true) == "x");
  const std::string written = tokenizer_json(tokenizer.model());
  CHECK(load(parse_json(written, "test")).encode_with_template("x") == Ids{id, x, id + 1});
}
