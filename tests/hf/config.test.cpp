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

  config = read_with({{"rope_scaling", {{"type", "dynamic"}, {"factor", 3}}}});
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::dynamic);
  CHECK(config.rope_scaling.factor == 3.0);

  Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}, {"beta_fast", nullptr}};
  config = read_with({{"rope_parameters", yarn}});
  CHECK(config.rope_scaling.type == nn::RopeScaling::Type::yarn);
  CHECK(config.rope_scaling.original_max_position_embeddings == 512);
  CHECK(config.rope_scaling.beta_fast == 32.0);
  CHECK_FALSE(config.rope_scaling.attention_factor.has_value());
  CHECK(config.rope_scaling.truncate);
  yarn.update(Json{{"factor", nullptr}, {"attention_factor", 1.5}, {"mscale", 0.7}, {"truncate", false}});
  config = read_with({{"rope_parameters", yarn}});
  CHECK(config.rope_scaling.factor == 4.0);  // 2,048 / 512
  CHECK(config.rope_scaling.attention_factor == 1.5);
  CHECK(config.rope_scaling.mscale == 0.7);
  CHECK_FALSE(config.rope_scaling.truncate);

  CHECK_THROWS_WITH(read_with({{"rope_scaling", {{"rope_type", "longrope"}}}}), ContainsSubstring("longrope"));
  CHECK_THROWS_WITH(read_with({{"rope_parameters", {{"full_attention", Json::object()}}}}),
                    ContainsSubstring("full_attention"));
  CHECK_THROWS_WITH(read_with({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}),
                    ContainsSubstring("partial_rotary_factor"));
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
  refused({{"model_type", "gemma"}}, "gemma");
  refused({{"model_type", "mistral"}}, "LlamaForCausalLM");
  refused({{"architectures", {"LlamaForSequenceClassification"}}}, "LlamaForSequenceClassification");
  refused({{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types");
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

TEST_CASE("config.json: architectures, biases and windows") {
  CHECK(read_with({{"attention_bias", true}}).attention_output_bias);
  CHECK(read_with({{"mlp_bias", true}}).mlp_bias);
  CHECK(read_with({{"sliding_window", 8}}).sliding_window == 0);  // not a key of Llama's

  Json mistral{{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"num_key_value_heads", 2}};
  auto config = read_with(mistral);
  CHECK(config.architecture == nn::Architecture::mistral);
  CHECK(config.sliding_window == 4096);
  CHECK(config.max_position_embeddings == 131072);
  CHECK_FALSE(config.attention_bias);
  mistral["sliding_window"] = nullptr;
  CHECK(read_with(mistral).sliding_window == 0);
  mistral["sliding_window"] = 0;
  CHECK_THROWS_WITH(read_with(mistral), ContainsSubstring("sliding_window"));

  Json qwen2{{"model_type", "qwen2"},
             {"architectures", {"Qwen2ForCausalLM"}},
             {"num_key_value_heads", 2},
             {"sliding_window", 16}};
  config = read_with(qwen2);
  CHECK(config.architecture == nn::Architecture::qwen2);
  CHECK(config.attention_bias);
  CHECK_FALSE(config.attention_output_bias);
  CHECK(config.sliding_window == 0);
  CHECK(config.bos_token_id == -1);
  CHECK(config.eos_token_ids.empty());
  qwen2["use_sliding_window"] = true;
  CHECK(read_with(qwen2).sliding_window == 0);  // max_window_layers is 28
  qwen2["max_window_layers"] = 1;
  CHECK(read_with(qwen2).sliding_window == 16);
  qwen2["layer_types"] = {"full_attention", "full_attention"};
  CHECK(read_with(qwen2).sliding_window == 0);
  qwen2["layer_types"] = {"full_attention", "linear_attention"};
  CHECK_THROWS_WITH(read_with(qwen2), ContainsSubstring("linear_attention"));
}

TEST_CASE("config.json: suppressed ids and the vocabulary that is used") {
  auto config = read(small(), {{"suppress_tokens", {3, 62, 64, 63}}});
  CHECK(config.suppress_tokens == std::vector<std::int64_t>{3, 62, 64, 63});
  CHECK(config.used_vocabulary() == 62);
  CHECK(read(small(), {{"suppress_tokens", nullptr}}).used_vocabulary() == 65);
}

TEST_CASE("config.json: what is written reads back") {
  using Type = nn::RopeScaling::Type;
  std::vector<nn::LlamaConfig> configs(6, read_with({{"head_dim", 16}, {"num_key_value_heads", 2}}));
  configs[0].tie_word_embeddings = true;
  configs[0].rope_theta = 500000.0;
  configs[0].rms_norm_eps = 1e-5;
  configs[0].pad_token_id = 7;
  configs[0].eos_token_ids = {8, 9};
  configs[0].suppress_tokens = {63, 64};
  configs[0].rope_scaling = {Type::llama3, 32.0, 1.0, 4.0, 4096};
  configs[1].rope_scaling.type = Type::linear;
  configs[1].attention_bias = configs[1].attention_output_bias = configs[1].mlp_bias = true;
  configs[2].rope_scaling.type = Type::dynamic;
  configs[2].architecture = nn::Architecture::mistral;
  configs[2].sliding_window = 9;
  configs[3].rope_scaling.type = Type::yarn;
  configs[3].rope_scaling.attention_factor = 1.25;
  configs[3].rope_scaling.truncate = false;
  configs[4].architecture = configs[5].architecture = nn::Architecture::qwen2;
  configs[4].attention_bias = configs[5].attention_bias = true;
  configs[5].sliding_window = 9;
  for (nn::LlamaConfig& config : configs) {
    test::TemporaryFolder folder;
    config.rope_scaling.factor = config.rope_scaling.type == Type::none ? 1.0 : 4.0;
    hf::write_config(folder.path(), config, torch::kBFloat16);
    CHECK(hf::read_config(folder.path()) == config);
    CHECK(read_json(folder / "config.json")["torch_dtype"] == "bfloat16");
    config.num_key_value_heads = 3;
    CHECK_THROWS_AS(hf::write_config(folder.path(), config, torch::kFloat), InputError);
  }
  auto config = read(small());
  config.mlp_bias = true;
  config.architecture = nn::Architecture::mistral;
  CHECK_THROWS_WITH(hf::write_config("nowhere", config, torch::kFloat), ContainsSubstring("MistralForCausalLM"));
}

TEST_CASE("config.json: what the source's files say beyond the configuration is kept") {
  test::TemporaryFolder source, folder;
  Json json = small();
  json.update(Json{{"my_key", {1, 2}},
                   {"dtype", "float32"},
                   {"attention_dropout", 0.1},
                   {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}});
  write_json(source / "config.json", json);
  write_json(source / "generation_config.json",
             {{"temperature", 0.6}, {"top_p", 0.9}, {"do_sample", true}, {"suppress_tokens", {64}}});
  auto config = hf::read_config(source.path());
  config.suppress_tokens.clear();
  config.vocab_size = 70;
  hf::write_config(folder.path(), config, torch::kBFloat16, source.path());
  CHECK(hf::read_config(folder.path()) == config);
  json = read_json(folder / "config.json");
  CHECK(json["my_key"] == Json{1, 2});
  CHECK(json["attention_dropout"] == 0.1);
  CHECK(json["vocab_size"] == 70);
  CHECK(json["torch_dtype"] == "bfloat16");
  CHECK(json["rope_theta"] == 7.0);
  CHECK_FALSE(json.contains("dtype"));
  CHECK_FALSE(json.contains("rope_parameters"));
  CHECK(read_json(folder / "generation_config.json") ==
        Json{{"temperature", 0.6}, {"top_p", 0.9}, {"do_sample", true}, {"bos_token_id", 1}, {"eos_token_id", 2}});
}
