#include "support/catch_torch.hpp"

#include <ilme/hf/config.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

Json small() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "transformers_version": "4.40.0", "use_cache": true, "_name_or_path": "x", "rope_scaling": null})");
}

nn::LlamaConfig read(const Json& json, const Json& generation = nullptr) {
  test::TemporaryFolder folder;
  write_json(folder / "config.json", json);
  if (!generation.is_null()) write_json(folder / "generation_config.json", generation);
  return hf::read_config(folder.path());
}

nn::LlamaConfig read_with(const Json& changes) {
  Json json = small();
  json.update(changes);
  return read(json);
}

}  // namespace

TEST_CASE("config.json: defaults are those of Transformers") {
  const auto config = read(small());
  CHECK(config.vocab_size == 65);
  CHECK(config.num_key_value_heads == 4);
  CHECK(config.head_dim == 8);
  CHECK(config.max_position_embeddings == 2048);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_theta == 10000.0);
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::none);
  CHECK_FALSE(config.tie_word_embeddings);
  CHECK(config.bos_token_id == 1);
  CHECK(config.eos_token_ids == std::vector<std::int64_t>{2});
  CHECK(config.pad_token_id == -1);
}

TEST_CASE("config.json: rotary parameters of Transformers 4 and 5") {
  const Json scaling{{"rope_type", "llama3"},
                     {"factor", 32.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  auto config = read_with({{"rope_theta", 500000}, {"rope_scaling", scaling}});
  CHECK(config.rope_theta == 500000.0);
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::llama3);
  CHECK(config.rope_scaling.factor == 32.0);
  CHECK(config.rope_scaling.original_max_position_embeddings == 8192);

  Json parameters = scaling;
  parameters["rope_theta"] = 250000.0;
  config = read_with({{"rope_parameters", parameters}});
  CHECK(config.rope_theta == 250000.0);
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::llama3);

  config = read_with({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}});
  CHECK(config.rope_theta == 7.0);
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::none);

  config = read_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::linear);
  CHECK(config.rope_scaling.factor == 2.0);

  parameters.erase("original_max_position_embeddings");
  config = read_with({{"max_position_embeddings", 4096}, {"rope_parameters", parameters}});
  CHECK(config.rope_scaling.original_max_position_embeddings == 4096);

  CHECK_THROWS_WITH(read_with({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}), ContainsSubstring("dynamic"));
  CHECK_THROWS_WITH(read_with({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}}), ContainsSubstring("yarn"));
  CHECK_THROWS_WITH(read_with({{"rope_scaling", {{"rope_type", "linear"}}}}), ContainsSubstring("factor"));
  CHECK_THROWS_WITH(read_with({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}}}),
                    ContainsSubstring("factor"));
}

TEST_CASE("config.json: end-of-text ids") {
  CHECK(read_with({{"eos_token_id", {3, 4}}}).eos_token_ids == std::vector<std::int64_t>{3, 4});
  CHECK(read_with({{"eos_token_id", nullptr}, {"bos_token_id", nullptr}}).eos_token_ids.empty());
  CHECK(read_with({{"bos_token_id", nullptr}}).bos_token_id == -1);
  CHECK(read(small(), {{"eos_token_id", {5, 6}}}).eos_token_ids == std::vector<std::int64_t>{5, 6});
  CHECK(read(small(), Json::object()).eos_token_ids == std::vector<std::int64_t>{2});
  CHECK_THROWS_WITH(read_with({{"eos_token_id", {"x"}}}), ContainsSubstring("eos_token_id"));
}

TEST_CASE("config.json: what would compute something else is refused by name") {
  const auto refused = [](const Json& changes, const std::string& name) {
    CAPTURE(name);
    CHECK_THROWS_WITH(read_with(changes), ContainsSubstring("config.json") && ContainsSubstring(name));
  };
  refused({{"model_type", "mistral"}}, "mistral");
  refused({{"architectures", {"LlamaForSequenceClassification"}}}, "LlamaForSequenceClassification");
  refused({{"attention_bias", true}}, "attention_bias");
  refused({{"mlp_bias", true}}, "mlp_bias");
  refused({{"hidden_act", "gelu"}}, "gelu");
  refused({{"pretraining_tp", 2}}, "pretraining_tp");
  refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  refused({{"quantization_config", {{"bits", 4}}}}, "quantization_config");
  refused({{"num_attention_heads", 5}}, "num_attention_heads 5");
  refused({{"num_key_value_heads", 3}}, "num_key_value_heads 3");
  refused({{"head_dim", 7}}, "head_dim 7");
  refused({{"num_attention_heads", 0}}, "num_attention_heads");
  refused({{"vocab_size", -1}}, "vocab_size");
  refused({{"vocab_size", "65"}}, "vocab_size");
  refused({{"vocab_size", nullptr}}, "vocab_size");
  refused({{"rms_norm_eps", 0}}, "rms_norm_eps");
}

TEST_CASE("config.json: what is written reads back") {
  test::TemporaryFolder folder;
  auto config = read_with({{"head_dim", 16}, {"num_key_value_heads", 2}, {"tie_word_embeddings", true}});
  config.rms_norm_eps = 1e-5;
  config.rope_theta = 500000.0;
  config.pad_token_id = 7;
  config.eos_token_ids = {8, 9};
  config.rope_scaling = {nn::RopeScaling::Type::llama3, 32.0, 1.0, 4.0, 4096};
  hf::write_config(folder.path(), config, torch::kBFloat16);
  const auto again = hf::read_config(folder.path());
  CHECK(again.head_dim == 16);
  CHECK(again.num_key_value_heads == 2);
  CHECK(again.tie_word_embeddings);
  CHECK(again.rms_norm_eps == 1e-5);
  CHECK(again.rope_theta == 500000.0);
  CHECK(again.rope_scaling.type == nn::RopeScaling::Type::llama3);
  CHECK(again.rope_scaling.original_max_position_embeddings == 4096);
  CHECK(again.pad_token_id == 7);
  CHECK(again.eos_token_ids == config.eos_token_ids);
  CHECK(read_json(folder / "config.json")["torch_dtype"] == "bfloat16");
  config.num_key_value_heads = 3;
  CHECK_THROWS_AS(hf::write_config(folder.path(), config, torch::kFloat), InputError);
}
