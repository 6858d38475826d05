#include <ilme/text/tokenizer_json_reader.hpp>
#include <ilme/text/tokenizer_json_writer.hpp>

#include <functional>
#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/text/tokenizer.hpp>

#include "support/temporary.hpp"
#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Ids = std::vector<TokenId>;

namespace {

/// The small tokenizer's file with one change.
Tokenizer load_changed(const std::function<void(Json&)>& change) {
  Json json = parse_json(tokenizer_json(test::small_model("<|a|>,<|b|>")), "test");
  change(json);
  const test::TemporaryFolder folder;
  write_file(folder / "tokenizer.json", json.dump());
  return Tokenizer::load(folder.path());
}

void check_refused(const std::function<void(Json&)>& change, const std::string& part) {
  INFO(part);
  CHECK_THROWS_MATCHES(load_changed(change), InputError,
                       MessageMatches(ContainsSubstring("tokenizer.json") && ContainsSubstring(part)));
}

}  // namespace

TEST_CASE("What is written reads back the same") {
  for (const char* specials : {"llama3", "chatml", "none"}) {
    for (const char* pattern : {"llama3", "gpt2", "\\d+|\\p{L}+"}) {
      const Tokenizer tokenizer = test::small_tokenizer(specials, pattern);
      const test::TemporaryFolder folder;
      tokenizer.save(folder / "deep");
      const Tokenizer again = Tokenizer::load(folder / "deep");
      CHECK(again.fingerprint() == tokenizer.fingerprint());
      CHECK(again.bos_id() == tokenizer.bos_id());
      CHECK(again.pad_id() == tokenizer.pad_id());
      CHECK(tokenizer_json(again.model()) == tokenizer_json(tokenizer.model()));
      CHECK(again.model().config == tokenizer.model().config);
      CHECK(Tokenizer::load(folder / "deep/tokenizer.json").eos_id() == tokenizer.eos_id());
    }
  }
}

TEST_CASE("tokenizer.json has the form that Hugging Face wants") {
  const Json json = parse_json(tokenizer_json(test::small_model("llama3")), "test");
  CHECK(json.at("added_tokens").size() == 6);
  CHECK(json.at("model").at("vocab").at("<|eot_id|>") == 4);
  CHECK(json.at("model").at("vocab").size() == 295);
  CHECK(json.at("model").at("merges").at(0) == Json::array({"Ä", "±"}));
  CHECK(json.at("pre_tokenizer").at("pretokenizers").at(0).at("pattern").at("Regex") == kLlama3Pattern);
  CHECK(json.at("post_processor").at("processors").at(1).at("special_tokens").at("<|begin_of_text|>").at("ids") ==
        Json::array({0}));
  const Json gpt2 = parse_json(tokenizer_json(test::small_model("none", "gpt2")), "test");
  CHECK(gpt2.at("pre_tokenizer").at("type") == "ByteLevel");
  CHECK(gpt2.at("pre_tokenizer").at("use_regex") == true);
  const Json config = test::small_model("llama3").config;
  CHECK(config.at("bos_token") == "<|begin_of_text|>");
  CHECK(config.at("eos_token") == "<|end_of_text|>");
  CHECK(config.at("tokenizer_class") == "PreTrainedTokenizerFast");
  CHECK(config.at("clean_up_tokenization_spaces") == false);
}

TEST_CASE("What cannot be reproduced is refused by name") {
  CHECK_NOTHROW(load_changed([](Json&) {}));
  check_refused([](Json& j) { j["normalizer"] = {{"type", "Nmt"}}; }, "normalizer: {\"type\":\"Nmt\"}");
  check_refused([](Json& j) { j["model"]["type"] = "Unigram"; }, "Unigram");
  check_refused(
      [](Json& j) {
        j["model"] = {{"type", "Unigram"}, {"vocab", Json::array({Json::array({"a", 0.5})})}};
      },
      "Unigram");
  check_refused([](Json& j) { j["model"]["type"] = "WordPiece"; }, "WordPiece");
  check_refused([](Json& j) { j["model"]["dropout"] = 0.1; }, "dropout");
  check_refused([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  check_refused([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  check_refused([](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix");
  check_refused([](Json& j) { j["model"]["novelty"] = 1; }, "novelty");
  check_refused([](Json& j) { j["novelty"] = 1; }, "novelty");
  check_refused([](Json& j) { j["truncation"] = {{"max_length", 5}}; }, "truncation");
  check_refused([](Json& j) { j["padding"] = {{"pad_id", 5}}; }, "padding");
  check_refused([](Json& j) { j["decoder"] = {{"type", "Metaspace"}}; }, "decoder");
  check_refused([](Json& j) { j["decoder"] = nullptr; }, "decoder");
  check_refused(
      [](Json& j) {
        j["decoder"] = {{"type", "Sequence"},
                        {"decoders", Json::array({{{"type", "ByteLevel"}}, {{"type", "Strip"}}})}};
      },
      "decoder");
  check_refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "Whitespace");
  check_refused([](Json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, "Metaspace");
  check_refused([](Json& j) { j["pre_tokenizer"] = nullptr; }, "pre_tokenizer");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"].push_back({{"type", "ByteLevel"}}); }, "twice");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"] = 7; }, "pretokenizers");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = 1; }, "add_prefix_space");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Thrown"; }, "Thrown");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["invert"] = "no"; }, "invert");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Glob", " "}}; }, "String");
  check_refused([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "(a"}}; }, "(a");
  check_refused([](Json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; }, "BertProcessing");
  check_refused(
      [](Json& j) {
        j["post_processor"] = {{"type", "TemplateProcessing"},
                               {"single", Json::array({{{"SpecialToken", {{"id", "<|a|>"}, {"type_id", 0}}}}})},
                               {"pair", Json::array()},
                               {"special_tokens", {{"<|a|>", {{"id", "<|a|>"}, {"ids", {9999}}}}}}};
      },
      "9999");
  check_refused(
      [](Json& j) {
        j["added_tokens"].push_back({{"id", 900}, {"content", "İ"}, {"normalized", true}, {"special", false}});
        j["added_tokens"].push_back({{"id", 901}, {"content", "I\u0307"}, {"normalized", true}, {"special", false}});
        j["normalizer"] = {{"type", "NFC"}};
      },
      "one and the same");
}

TEST_CASE("Broken vocabularies and merges are refused by name") {
  check_refused(
      [](Json& j) {
        j["model"]["merges"].push_back(Json::array({"zz", "qq"}));
      },
      "\"zz\" is not in the vocabulary");
  check_refused(
      [](Json& j) {
        j["model"]["merges"].push_back(Json::array({"q", "w"}));
      },
      "\"qw\" is not in the vocabulary");
  check_refused([](Json& j) { j["model"]["merges"].push_back(Json::array({"q"})); }, "merge 33");
  check_refused([](Json& j) { j["model"]["merges"].push_back("qz"); }, "merge 33 is \"qz\"");
  check_refused([](Json& j) { j["model"]["merges"].push_back("q z z"); }, "merge 33");
  check_refused([](Json& j) { j["model"]["merges"][3] = 7; }, "merge 3");
  check_refused([](Json& j) { j["model"]["vocab"].erase("É"); }, "\"É\" is not in the vocabulary");

  check_refused([](Json& j) { j["model"]["vocab"]["w"] = 3; }, "of another token");
  check_refused([](Json& j) { j["model"]["vocab"]["w"] = -1; }, "\"w\" has the id -1");
  check_refused([](Json& j) { j["model"]["vocab"]["w"] = 4000000000U; }, "4000000000");
  check_refused([](Json& j) { j["model"]["vocab"]["<|a|>"] = 250; }, "of another token");
  check_refused([](Json& j) { j["model"]["vocab"]["ə"] = 999; }, "byte-level");
  check_refused([](Json& j) { j["model"].erase("merges"); }, "model.merges is missing");
  check_refused([](Json& j) { j["model"].erase("vocab"); }, "model.vocab is missing");
  check_refused([](Json& j) { j.erase("model"); }, "model");
  check_refused([](Json& j) { j["model"]["vocab"].erase("<|a|>"), j["added_tokens"][0]["id"] = 77; }, "77");
  check_refused([](Json& j) { j["added_tokens"].push_back(j["added_tokens"][0]); }, "twice");
  const test::TemporaryFolder folder;
  const std::string text = tokenizer_json(test::small_model("none"));
  for (const std::size_t size : {std::size_t{1}, std::size_t{10}, text.size() / 2, text.size() - 3}) {
    write_file(folder / "tokenizer.json", text.substr(0, size));
    CHECK_THROWS_MATCHES(Tokenizer::load(folder.path()), InputError,
                         MessageMatches(ContainsSubstring("not valid JSON")));
  }
  CHECK_THROWS_AS(Tokenizer::load(folder / "absent"), InputError);
  write_file(folder / "tokenizer.json", R"({"normalizer":)" + std::string(1000000, '['));
  CHECK_THROWS_MATCHES(Tokenizer::load(folder.path()), InputError,
                       MessageMatches(ContainsSubstring("tokenizer.json: /normalizer: more than 200 levels deep")));
  CHECK_THROWS_MATCHES(load_changed([](Json& j) { j["added_tokens"] = 3; }), InputError,
                       MessageMatches(ContainsSubstring("added_tokens")));
}

TEST_CASE("Roles come from tokenizer_config.json") {
  const test::TemporaryFolder folder;
  test::small_tokenizer("llama3").save(folder.path());
  write_file(folder / "tokenizer_config.json",
             R"({"bos_token": null, "eos_token": {"content": "<|eot_id|>", "lstrip": false}})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  CHECK_FALSE(tokenizer.bos_id());
  CHECK(tokenizer.eos_id() == 4);
  CHECK_FALSE(tokenizer.pad_id());
  write_file(folder / "tokenizer_config.json", R"({"pad_token": "<pad>"})");
  CHECK_THROWS_MATCHES(Tokenizer::load(folder.path()), InputError, MessageMatches(ContainsSubstring("<pad>")));
  std::filesystem::remove(folder / "tokenizer_config.json");
  CHECK(Tokenizer::load(folder.path()).bos_id() == 0);
}

TEST_CASE("Added tokens: two passes, sparse ids") {
  const Tokenizer tokenizer = load_changed([](Json& j) {
    j["added_tokens"].push_back({{"id", 900}, {"content", "baba"}, {"normalized", true}, {"special", false}});
    j["added_tokens"].push_back({{"id", 901}, {"content", "ab"}, {"normalized", false}, {"special", false}});
    j["model"]["vocab"].erase("baba");
    Json& merges = j["model"]["merges"];
    merges.erase(std::find(merges.begin(), merges.end(), Json::array({"ba", "ba"})));
  });
  CHECK(tokenizer.vocabulary_size() == 902);
  CHECK(tokenizer.token_bytes(899).empty());
  // "ab" is sought first although "baba" starts further left.
  CHECK(tokenizer.encode("baba") == Ids{*tokenizer.token_to_id("b"), 901, *tokenizer.token_to_id("a")});
  CHECK(tokenizer.decode(tokenizer.encode("xbaba ab")) == "xbaba ab");
}

TEST_CASE("An added token has the id of model.vocab") {
  const Tokenizer tokenizer = load_changed([](Json& j) {
    j["model"]["vocab"]["<|a|>"] = 290 + 10;
    j["added_tokens"][0]["id"] = 7;
  });
  CHECK(tokenizer.encode("<|a|>", Special::allow) == Ids{300});
}

// Ids by tokenizers 0.23.3.
TEST_CASE("Added tokens: flags") {
  const Tokenizer tokenizer = load_changed([](Json& j) {
    const auto add = [&](int id, const char* content, const char* flag) {
      j["added_tokens"].push_back({{"id", id}, {"content", content}, {"normalized", false}, {"special", false}});
      j["added_tokens"].back()[flag] = true;
    };
    add(291, "<l>", "lstrip");
    add(292, "<r>", "rstrip");
    add(293, "<w>", "single_word");
  });
  const TokenId x = *tokenizer.token_to_id("x"), space = *tokenizer.token_to_id(" ");
  CHECK(tokenizer.encode("x \u3000<l> x") == Ids{x, 291, space, x});
  CHECK(tokenizer.encode("x <r> \n\tx") == Ids{x, space, 292, x});
  CHECK(tokenizer.encode("<r>  <l>") == Ids{292, 291});
  CHECK(tokenizer.encode("<w> <w>") == Ids{293, space, 293});
  CHECK(tokenizer.encode("x<w>").size() == 4);
  CHECK(tokenizer.encode("<w>ə").size() == 4);
  CHECK(tokenizer.encode("<w>\u0301").size() == 5);
  CHECK(tokenizer.encode("<w>\xFF").front() == 293);
  CHECK(tokenizer.encode("<w>!").front() == 293);
}

// The ids of tokenizers 0.23.3 for the same file.
TEST_CASE("A byte without a token is left out before anything merges") {
  const auto few = [](Json& json) {
    json["added_tokens"] = Json::array();
    json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    json["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"Ġ", 3}, {"ab", 4}, {"abc", 5}, {"Ġa", 6}, {"aĠ", 7}};
    json["model"]["merges"] = {"a b", "ab c", "Ġ a"};
  };
  const Tokenizer tokenizer = load_changed(few);
  CHECK(tokenizer.encode("a\x04"
                         "bc") == Ids{5});
  CHECK(tokenizer.encode("\x04"
                         "abcé") == Ids{5});
  CHECK(tokenizer.encode("\x04").empty());
  CHECK(tokenizer.encode("xyz").empty());
  CHECK(tokenizer.encode("aXb c") == Ids{4, 3, 2});
  CHECK(tokenizer.encode("a bƏc a") == Ids{0, 3, 1, 2, 6});
  CHECK(tokenizer.encode(std::string(20, '\x04') + "ab") == Ids{4});
  std::string text;
  for (int i = 0; i < 40; ++i) text += "ab";
  Ids ids(40, 4);
  ids.back() = 5;
  for (int repetition = 0; repetition < 2; ++repetition)
    CHECK(tokenizer.encode(text + "\x04"
                                  "c") == ids);
  const EncodedText aligned = tokenizer.encode_with_offsets(
      "\x04"
      "a\x04"
      "b x c");
  CHECK(aligned.ids == Ids{4, 3, 3, 2});
  CHECK(aligned.ranges == std::vector<SourceRange>{{1, 4}, {4, 5}, {6, 7}, {7, 8}});

  check_refused(
      [&](Json& json) {
        few(json);
        json["model"]["unk_token"] = "a";
      },
      "unk_token \"a\"");
}

TEST_CASE("Reference: whole pieces and merges") {
  const auto folder = test::shared_path("cases/tok-ignore-merges");
  if (!folder) SKIP("the reference data is absent");
  const Tokenizer with = Tokenizer::load(*folder / "ignore_true.json"),
                  without = Tokenizer::load(*folder / "ignore_false.json"),
                  absent = Tokenizer::load(*folder / "ignore_absent.json");
  const Json cases = read_json(*folder / "expected.json").at("cases");
  for (const Json& entry : cases) {
    const auto text = entry.at("text").get<std::string>();
    CHECK(with.encode(text) == entry.at("ids_ignore_true").get<Ids>());
    CHECK(without.encode(text) == entry.at("ids_ignore_false").get<Ids>());
    CHECK(absent.encode(text) == entry.at("ids_ignore_false").get<Ids>());
  }
}

TEST_CASE("Reference: merges as strings and as pairs") {
  const auto folder = test::shared_path("cases/tok-merges-forms");
  if (!folder) SKIP("the reference data is absent");
  const Json expected = read_json(*folder / "expected.json");
  const Tokenizer pairs = Tokenizer::load(*folder / "pairs.json"), strings = Tokenizer::load(*folder / "strings.json");
  CHECK(pairs.fingerprint() == strings.fingerprint());
  for (const Json& entry : expected.at("same_ids")) {
    CHECK(pairs.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<Ids>());
    CHECK(strings.encode(entry.at("text").get<std::string>()) == entry.at("ids").get<Ids>());
  }
  for (const auto& [name, reason] : expected.at("must_refuse").items()) {
    CHECK_THROWS_MATCHES(Tokenizer::load(*folder / name), InputError,
                         MessageMatches(ContainsSubstring(name) && ContainsSubstring("merge ")));
  }
  CHECK_THROWS_AS(Tokenizer::load(*folder / "pairs_with_space.json"), InputError);
}

TEST_CASE("Reference: overlapping added tokens") {
  const auto folder = test::shared_path("cases/tok-special-overlap");
  if (!folder) SKIP("the reference data is absent");
  const Tokenizer tokenizer = Tokenizer::load(*folder / "tokenizer.json");
  const Json cases = read_json(*folder / "expected.json").at("cases");
  for (const Json& entry : cases) {
    INFO(entry.at("text"));
    CHECK(tokenizer.encode(entry.at("text").get<std::string>(), Special::allow) == entry.at("ids").get<Ids>());
  }
  const Tokenizer flags = Tokenizer::load(*folder / "strip_flags.json");
  const Json strip_flags_cases = read_json(*folder / "expected.json").at("strip_flags_cases");
  for (const Json& entry : strip_flags_cases) {
    INFO(entry.at("text"));
    CHECK(flags.encode(entry.at("text").get<std::string>(), Special::allow) == entry.at("ids").get<Ids>());
  }
}

TEST_CASE("Reference: normalisers, the same in every locale") {
  const auto folder = test::shared_path("cases/tok-turkic-normalize");
  if (!folder) SKIP("the reference data is absent");
  const Json cases = read_json(*folder / "expected.json").at("cases");
  for (const auto& [name, entries] : cases.items()) {
    const Tokenizer tokenizer = Tokenizer::load(*folder / (name + ".json"));
    for (const Json& entry : entries) {
      INFO(name << " " << entry);
      const auto text = entry.at("text").get<std::string>();
      CHECK(tokenizer.model().normalizer.normalize(text) == entry.at("normalized").get<std::string>());
      CHECK(tokenizer.encode(text) == entry.at("ids").get<Ids>());
    }
  }
}

TEST_CASE("Reference: a Unigram tokenizer is refused by name") {
  const auto folder = test::shared_path("data/tokenizers/az_vrashad_hf");
  if (!folder) SKIP("the reference data is absent");
  CHECK_THROWS_MATCHES(Tokenizer::load(*folder), InputError, MessageMatches(ContainsSubstring("Unigram")));
}
