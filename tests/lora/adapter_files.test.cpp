#include "support/catch_torch.hpp"

#include <ilme/lora/adapter_files.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kQ0 = "model.layers.0.self_attn.q_proj", kQ1 = "model.layers.1.self_attn.q_proj",
                  kDown0 = "model.layers.0.mlp.down_proj";

io::NamedTensors pair(const std::string& module, std::int64_t rank, std::int64_t in = 6, std::int64_t out = 5) {
  return {{module + ".lora_A.weight", torch::randn({rank, in})},
          {module + ".lora_B.weight", torch::randn({out, rank})}};
}

void no_warning(const std::string& text) { FAIL_CHECK(text); }

}  // namespace

TEST_CASE("adapter: target modules are matched by PEFT's rules") {
  lora::AdapterConfig config;
  config.target_modules = {"q_proj", "layers.0.mlp.down_proj", "lm_head"};
  CHECK(lora::selects(config, kQ0));
  CHECK(lora::selects(config, kDown0));
  CHECK(lora::selects(config, "lm_head"));
  CHECK_FALSE(lora::selects(config, "model.layers.1.mlp.down_proj"));
  CHECK_FALSE(lora::selects(config, "model.layers.0.self_attn.my_q_proj"));
  CHECK_FALSE(lora::selects(config, kQ0 + ".inner"));
  config.target_pattern = ".*\\.(q|v)_proj";
  CHECK(lora::selects(config, kQ0));
  CHECK_FALSE(lora::selects(config, "q_proj"));
  CHECK_FALSE(lora::selects(config, kQ0 + "x"));
  config.target_pattern = "a|model\\.layers\\.0.*";  // an alternative inside re.fullmatch covers the whole name
  CHECK(lora::selects(config, kQ0));
  CHECK(lora::selects(config, "a"));
  CHECK_FALSE(lora::selects(config, "ab"));
  config.target_pattern = "All-Linear";
  CHECK(lora::selects(config, kQ0));
  CHECK_FALSE(lora::selects(config, "lm_head"));
  config.target_pattern = "(q";
  CHECK_THROWS_WITH(lora::selects(config, kQ0), ContainsSubstring("(q"));
}

TEST_CASE("adapter: rank and alpha patterns are looked up separately, the first match counts") {
  lora::AdapterConfig config;
  config.rank = 4;
  config.alpha = 8;
  config.rank_pattern = {{"q_proj", 8}, {".*q_proj", 16}};
  config.alpha_pattern = {{"layers.1.self_attn.q_proj", 64}, {"^down_proj", 100}};
  CHECK(lora::rank_for(config, kQ0) == 8);
  CHECK(lora::scaling_for(config, kQ0) == 1.0);
  CHECK(lora::scaling_for(config, kQ1) == 8.0);
  CHECK(lora::scaling_for(config, kDown0) == 2.0);
  CHECK(lora::unmatched_patterns(config, {kQ0, kQ1, kDown0}) ==
        std::vector<std::string>{"alpha_pattern key \"^down_proj\""});
  config.use_rslora = true;
  CHECK(lora::scaling_for(config, kDown0) == 4.0);
}

TEST_CASE("adapter: what is saved loads again") {
  test::TemporaryFolder folder;
  lora::AdapterConfig config;
  config.base_model_name_or_path = "base";
  config.rank = 4;
  config.alpha = 28;
  config.dropout = 0.05;
  config.target_modules = {"q_proj", "down_proj"};
  config.rank_pattern = {{"layers.1.self_attn.q_proj", 2}};
  config.alpha_pattern = {{"down_proj", 2.5}};
  io::NamedTensors tensors = pair(kQ0, 4);
  for (auto& more : pair(kQ1, 2)) tensors.push_back(more);
  for (auto& more : pair(kDown0, 4, 9, 3)) tensors.push_back(more);
  lora::save_adapter(folder.path(), config, tensors);

  const Json json = read_json(folder / "adapter_config.json");
  CHECK(json["lora_alpha"].dump() == "28");
  const auto read = lora::read_adapter_config(folder.path(), no_warning);
  CHECK(read.base_model_name_or_path == "base");
  CHECK(read.rank == 4);
  CHECK(read.alpha == 28.0);
  CHECK(read.dropout == 0.05);
  CHECK(read.target_modules == config.target_modules);
  CHECK(read.rank_pattern == config.rank_pattern);
  CHECK(read.alpha_pattern == config.alpha_pattern);
  CHECK(io::SafetensorsFile(folder / "adapter_model.safetensors")
            .contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));

  io::NamedTensors targets;
  for (const auto& [name, tensor] : tensors) targets.emplace_back(name, torch::zeros_like(tensor, torch::kDouble));
  lora::load_adapter_tensors(folder.path(), targets, no_warning);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(torch::equal(targets[i].second, tensors[i].second.to(torch::kDouble)));
  }
  targets.pop_back();
  CHECK_THROWS_WITH(lora::load_adapter_tensors(folder.path(), targets), ContainsSubstring("no place in the model"));
  targets.emplace_back("other.lora_B.weight", torch::zeros({1, 1}));
  CHECK_THROWS_WITH(lora::load_adapter_tensors(folder.path(), targets), ContainsSubstring("other.lora_B.weight"));
  targets = tensors;
  targets[0].second = torch::zeros({4, 7});
  CHECK_THROWS_WITH(lora::load_adapter_tensors(folder.path(), targets), ContainsSubstring("expects [4,7]"));

  config.target_pattern = ".*";
  lora::save_adapter(folder.path(), config, tensors);
  CHECK(lora::read_adapter_config(folder.path()).target_pattern == ".*");
}

TEST_CASE("adapter: tensors that do not agree with the configuration are refused") {
  test::TemporaryFolder folder;
  lora::AdapterConfig config;
  config.rank = 4;
  config.target_modules = {"q_proj"};
  const auto save = [&](const io::NamedTensors& tensors) { lora::save_adapter(folder.path(), config, tensors); };
  CHECK_THROWS_WITH(save(pair(kQ0, 3)), ContainsSubstring("has shape [3,6]") && ContainsSubstring("is 4"));
  CHECK_THROWS_WITH(save(pair(kDown0, 4)), ContainsSubstring("does not select"));
  CHECK_THROWS_WITH(save({pair(kQ0, 4)[0]}), ContainsSubstring("lacks lora_B.weight"));
  CHECK_THROWS_WITH(save({{"lm_head.weight", torch::ones({2, 2})}}), ContainsSubstring("lm_head.weight"));
  config.rank = 0;
  CHECK_THROWS_WITH(save(pair(kQ0, 4)), ContainsSubstring("rank"));
  config.rank = 4;
  config.dropout = 1.0;
  CHECK_THROWS_WITH(save(pair(kQ0, 4)), ContainsSubstring("lora_dropout"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("adapter: configurations of other adapters are refused by name, unknown keys are warned about") {
  test::TemporaryFolder folder;
  const Json plain = Json::parse(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"],
      "peft_version": "0.21.2", "megatron_core": "megatron.core", "loftq_config": {}, "some_future_flag": null})");
  std::vector<std::string> warnings;
  const auto read = [&](const Json& changes) {
    Json json = plain;
    json.update(changes);
    write_json(folder / "adapter_config.json", json);
    return lora::read_adapter_config(folder.path(), [&](const std::string& text) { warnings.push_back(text); });
  };
  read(Json::object());
  CHECK(warnings.empty());
  read({{"some_future_flag", 3}});
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("some_future_flag"));
  const Json refused{{"peft_type", "LOHA"},        {"bias", "all"},
                     {"use_dora", true},           {"modules_to_save", {"norm"}},
                     {"layers_to_transform", 0.5}, {"init_lora_weights", "pissa"},
                     {"target_modules", Json()},   {"r", 0},
                     {"lora_dropout", 1}};
  for (const auto& [key, value] : refused.items()) {
    CAPTURE(key);
    CHECK_THROWS_WITH(read({{key, value}}), ContainsSubstring(key) && ContainsSubstring("adapter_config.json"));
  }
  CHECK_THROWS_WITH(read({{"rank_pattern", {{"q_proj", "x"}}}}), ContainsSubstring("rank_pattern"));
}

TEST_CASE("lora-patterns: the shared adapters have PEFT's ranks and scalings, or are refused") {
  const auto folder = test::shared_path("cases/lora-patterns");
  if (!folder) SKIP("cases/lora-patterns is absent");
  const Json expected = read_json(*folder / "expected.json");
  for (const auto& [name, variant] : expected["variants"].items()) {
    CAPTURE(name);
    std::vector<std::string> warnings;
    const auto warn = [&](const std::string& text) { warnings.push_back(text); };
    const auto config = lora::read_adapter_config(*folder / name, warn);
    const auto tensors = lora::read_adapter_tensors(*folder / name, config, warn);
    CHECK(tensors.size() == 12);
    for (const auto& [module, scaling] : variant["scaling"].items()) {
      CAPTURE(module);
      CHECK(lora::selects(config, module));
      CHECK(lora::scaling_for(config, module) == scaling.get<double>());
      CHECK(lora::rank_for(config, module) == variant["rank"][module].get<std::int64_t>());
    }
    CHECK(warnings.size() == variant["peft_warned"].size());
  }
  for (const char* name : {"refuse_bias_all", "refuse_dora", "refuse_rank_mismatch", "refuse_unknown_peft_type"}) {
    CAPTURE(name);
    CHECK_THROWS_AS(lora::read_adapter_tensors(*folder / name, lora::read_adapter_config(*folder / name)), InputError);
  }
  CHECK_NOTHROW(lora::read_adapter_config(*folder / "extra_unknown_key"));
}
