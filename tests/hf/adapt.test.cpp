#include "hf/small_models.hpp"

#include <ilme/hf/adapt.hpp>
#include <ilme/hf/model_folder.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::vector<std::string> kChatml{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
const std::vector<std::pair<std::string, std::string>> kOldMerges{{"k", "i"}, {"t", "a"}, {"ki", "ta"}};
const std::vector<std::pair<std::string, std::string>> kNewMerges{{"k", "i"}, {"ki", "t"}, {"\xC9", "\x99"}};

/// A model with its tokenizer in "old" and a tokenizer in "new".
struct Folders {
  test::TemporaryFolder root;
  explicit Folders(bool tied = true, at::ScalarType dtype = at::kFloat,
                   const std::vector<std::string>& new_specials = kChatml, Json new_config = Json::object()) {
    nn::LlamaConfig config = test::small_config(256 + 3 + 3, tied);
    config.bos_token_id = 1;
    config.eos_token_ids = {2};
    config.pad_token_id = 0;
    test::write_small_model(root / "old", config, test::small_tokenizer_model(kChatml, kOldMerges), dtype);
    text::save_tokenizer(test::small_tokenizer_model(new_specials, kNewMerges, std::move(new_config)), root / "new");
  }
  hf::AdaptReport adapt(std::int64_t pad_to = 1, hf::RowMethod method = hf::RowMethod::mean) const {
    return hf::adapt_model(
        {.model = root / "old", .tokenizer = root / "new", .output = root / "out", .method = method, .pad_to = pad_to});
  }
  Json json(const std::string& name) const { return read_json(root / name); }
};

}  // namespace

TEST_CASE("adapt: a tied model stays tied, an untied one gets both tables; the rest is the same, bit for bit") {
  const bool tied = GENERATE(true, false);
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const Folders folders(tied, dtype);
  const auto report = folders.adapt(64);
  CHECK(report.old_rows == 262);
  CHECK(report.new_rows == 320);
  CHECK(report.copied == 3 + 256 + 1);
  CHECK(report.averaged == 2);
  CHECK(report.padded == 58);
  CHECK(report.by_role + report.fresh == 0);
  const hf::WeightFiles before(folders.root / "old"), after(folders.root / "out");
  CHECK(after.contains("lm_head.weight") != tied);
  for (const std::string& name : before.names()) {
    const bool table = name == "model.embed_tokens.weight" || name == "lm_head.weight";
    CHECK(after.entry(name).dtype == before.entry(name).dtype);
    if (!table) {
      CHECK(at::equal(after.tensor(name), before.tensor(name)));
      continue;
    }
    const at::Tensor old = before.tensor(name), moved = after.tensor(name);
    CHECK(at::equal(moved.narrow(0, 0, 260), old.narrow(0, 0, 260)));
    const auto k_i = old[259].to(at::kFloat), t = old[3 + 't'].to(at::kFloat);
    CHECK(at::equal(moved[260], ((k_i + t) / 2).to(dtype)));
  }
  const auto config = hf::read_config(folders.root / "out");
  CHECK(config.vocab_size == 320);
  CHECK(config.used_vocabulary() == 262);
  CHECK(config.tie_word_embeddings == tied);
  auto model = hf::load_model<nn::Llama<ops::Reference>>(folders.root / "out", at::kFloat);
  CHECK(model->lm_head_weight().size(0) == 320);
  CHECK(text::Tokenizer::load(folders.root / "out").fingerprint() ==
        text::Tokenizer::load(folders.root / "new").fingerprint());
}

TEST_CASE("adapt: ids in config.json and generation_config.json follow their tokens") {
  // New ids of the same names: <|im_end|> 0, <|im_start|> 1, <|endoftext|> 2.
  const Folders folders(true, at::kFloat, {"<|im_end|>", "<|im_start|>", "<|endoftext|>"});
  Json config = folders.json("old/config.json");
  config["own"] = {{"key", 1}};
  write_json(folders.root / "old/config.json", config);
  write_json(folders.root / "old/generation_config.json", {{"bos_token_id", 1},
                                                           {"eos_token_id", {2, 0}},
                                                           {"pad_token_id", 0},
                                                           {"temperature", 0.5},
                                                           {"forced_eos_token_id", 2},
                                                           {"decoder_start_token_id", 260},
                                                           {"suppress_tokens", {0, 259, 261}},
                                                           {"bad_words_ids", {{259}, {3 + 'a', 261}}},
                                                           {"sequence_bias", {{{2}, 1.0}}}});
  const auto report = folders.adapt(8);
  const Json moved = folders.json("out/config.json"), generation = folders.json("out/generation_config.json");
  CHECK(moved["own"] == config["own"]);
  CHECK(moved["bos_token_id"] == 1);
  CHECK(moved["eos_token_id"] == Json({0, 2}));
  CHECK(moved["pad_token_id"] == 2);
  CHECK(moved["vocab_size"] == 264);
  CHECK(generation["temperature"] == 0.5);
  CHECK(generation["eos_token_id"] == Json({0, 2}));
  CHECK(generation["forced_eos_token_id"] == 0);
  CHECK_FALSE(generation.contains("decoder_start_token_id"));  // "ta" is not in the new vocabulary
  CHECK_FALSE(generation.contains("sequence_bias"));
  CHECK(generation["suppress_tokens"] == Json({2, 259, 262, 263}));
  CHECK(generation["bad_words_ids"] == Json({{259}}));
  CHECK(report.notes.size() == 2);
}

TEST_CASE("adapt: the chat template of the new tokenizer, else the old one's if its tokens are there") {
  const std::string old_template = "{{ '<|im_start|>' }}{{ '<|im_end|>' }}", new_template = "{{ '<|eot_id|>' }}";
  const auto written = [&](const std::vector<std::string>& specials, const Json& config) {
    const Folders folders(true, at::kFloat, specials, config);
    write_file(folders.root / "old/chat_template.jinja", old_template);
    const auto report = folders.adapt();
    const auto path = folders.root / "out/chat_template.jinja";
    const std::string file = std::filesystem::exists(path) ? read_file(path) : "";
    const std::string key = folders.json("out/tokenizer_config.json").value("chat_template", "");
    return std::pair(file + key, report.notes.empty() ? "" : report.notes.front());
  };
  CHECK(written(kChatml, Json::object()).first == old_template);
  CHECK_THAT(written(kChatml, Json::object()).second, ContainsSubstring("old tokenizer's"));
  CHECK(written({"<|endoftext|>"}, Json::object()).first == "");
  CHECK_THAT(written({"<|endoftext|>"}, Json::object()).second, ContainsSubstring("lacks <|im_start|>, <|im_end|>"));
  const auto foreign = written({"<|endoftext|>", "<|eot_id|>"}, {{"chat_template", new_template}});
  CHECK(foreign.first == new_template);
  CHECK_THAT(foreign.second, ContainsSubstring("never seen its <|eot_id|>"));
}

TEST_CASE("adapt: the same tokenizer gives the same model, and an extension keeps every old row") {
  const Folders folders(false, at::kBFloat16);
  auto model = test::small_tokenizer_model(kChatml, kOldMerges);
  text::save_tokenizer(model, folders.root / "new");
  CHECK(folders.adapt().copied == 262);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    CHECK(at::equal(hf::WeightFiles(folders.root / "out").tensor(name),
                    hf::WeightFiles(folders.root / "old").tensor(name)));
  }
  model.merges.push_back({260, 3 + 'a', 262});
  model.tokens.push_back("taa");
  text::save_tokenizer(model, folders.root / "new");
  std::filesystem::remove_all(folders.root / "out");
  CHECK(folders.adapt().averaged == 1);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    CHECK(at::equal(hf::WeightFiles(folders.root / "out").tensor(name).narrow(0, 0, 262),
                    hf::WeightFiles(folders.root / "old").tensor(name)));
  }
}

TEST_CASE("adapt: a tied model's file may hold the head once more, but not another one") {
  const Folders folders;
  const auto with_head = [&](const at::Tensor& head) {
    io::NamedTensors tensors;
    const hf::WeightFiles files(folders.root / "old");
    for (const std::string& name : files.names()) {
      if (name != "lm_head.weight") tensors.emplace_back(name, files.tensor(name).clone());
    }
    tensors.emplace_back("lm_head.weight", head);
    io::save_safetensors(folders.root / "old/model.safetensors", tensors);
  };
  const at::Tensor embedding = hf::WeightFiles(folders.root / "old").tensor("model.embed_tokens.weight").clone();
  with_head(embedding + 1);
  CHECK_THROWS_WITH(folders.adapt(), ContainsSubstring("differs from model.embed_tokens.weight"));
  with_head(embedding);
  folders.adapt();
  CHECK_FALSE(hf::WeightFiles(folders.root / "out").contains("lm_head.weight"));
}

TEST_CASE("adapt: folders that do not fit are refused, and nothing is written") {
  const Folders folders;
  const hf::AdaptOptions good{
      .model = folders.root / "old", .tokenizer = folders.root / "new", .output = folders.root / "out"};
  const auto with = [&](auto&& change) {
    hf::AdaptOptions options = good;
    change(options);
    return [options] { hf::adapt_model(options); };
  };
  using Options = hf::AdaptOptions;
  CHECK_THROWS_WITH(with([](Options& o) { o.output = o.model; })(), ContainsSubstring("both an input and the output"));
  CHECK_THROWS_WITH(with([](Options& o) { o.output = o.tokenizer / ""; })(), ContainsSubstring("both an input"));
  CHECK_THROWS_WITH(with([&](Options& o) { o.output = folders.root.path(); })(), ContainsSubstring("holds files"));
  CHECK_THROWS_WITH(with([&](Options& o) { o.output = folders.root / "old/config.json"; })(),
                    ContainsSubstring("is a file"));
  CHECK_THROWS_WITH(with([](Options& o) { o.pad_to = 0; })(), ContainsSubstring("pad-to is 0"));
  CHECK_THROWS_WITH(with([](Options& o) { o.pad_to = std::int64_t{1} << 40; })(), ContainsSubstring("pad-to is"));
  CHECK_THROWS_WITH(with([](Options& o) { o.tokenizer = o.model / "nowhere"; })(), ContainsSubstring("nowhere"));
  CHECK_THROWS_AS(hf::detail::check_disk(folders.root / "out", std::uint64_t{1} << 62), RunError);
  std::filesystem::rename(folders.root / "old/tokenizer.json", folders.root / "tokenizer.json");
  CHECK_THROWS_WITH(with([](Options&) {})(), ContainsSubstring("--model-tokenizer"));
  CHECK_FALSE(std::filesystem::exists(folders.root / "out"));
  CHECK_NOTHROW(with([&](Options& o) { o.old_tokenizer = folders.root.path(); })());
}
