/// config.json and generation_config.json of Hugging Face Transformers 4 and 5, to and from nn::LlamaConfig.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/dtype.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::hf {

/// Throws InputError that opens with `where` and names the field when the shapes do not fit each other or a number is
/// out of range.
inline void check_config(const nn::LlamaConfig& config, const std::string& where) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"vocab_size", config.vocab_size},
                                                        {"hidden_size", config.hidden_size},
                                                        {"intermediate_size", config.intermediate_size},
                                                        {"num_hidden_layers", config.num_hidden_layers},
                                                        {"num_attention_heads", config.num_attention_heads},
                                                        {"num_key_value_heads", config.num_key_value_heads},
                                                        {"head_dim", config.head_dim},
                                                        {"max_position_embeddings", config.max_position_embeddings}};
  for (const auto& [name, value] : sizes) {
    if (value < 1 || value > (std::int64_t{1} << 31)) {
      throw InputError(where, ": ", name, " is ", value, ", expected 1 or more");
    }
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    throw InputError(where, ": num_attention_heads ", config.num_attention_heads,
                     " is not a multiple of num_key_value_heads ", config.num_key_value_heads);
  }
  if (config.head_dim % 2 != 0) {
    throw InputError(where, ": head_dim ", config.head_dim, " is odd; rotary embeddings need pairs");
  }
  const nn::RopeScaling& rope = config.rope_scaling;
  const bool llama3 = rope.type == nn::RopeScaling::Type::llama3;
  std::vector<std::pair<const char*, double>> positive{{"rms_norm_eps", config.rms_norm_eps},
                                                       {"rope_theta", config.rope_theta}};
  if (rope.type != nn::RopeScaling::Type::none) positive.emplace_back("rope_scaling factor", rope.factor);
  if (llama3) {
    positive.emplace_back("rope_scaling low_freq_factor", rope.low_freq_factor);
    positive.emplace_back("rope_scaling original_max_position_embeddings",
                          static_cast<double>(rope.original_max_position_embeddings));
  }
  for (const auto& [name, value] : positive) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InputError(where, ": ", name, " is ", value, ", expected a number above 0");
    }
  }
  if (llama3 && !(rope.high_freq_factor > rope.low_freq_factor)) {
    throw InputError(where, ": rope_scaling high_freq_factor ", rope.high_freq_factor,
                     " must be above low_freq_factor ", rope.low_freq_factor);
  }
}

namespace detail {

using ilme::detail::short_dump;

/// Refuses what would change the computation in a way that this library does not compute.
inline void refuse_foreign_models(JsonObject& object) {
  const auto refuse = [&](const std::string& key, const std::string& expected) {
    throw InputError(object.where(), ": ", key, " ", short_dump(object.raw(key)), " is not supported, expected ",
                     expected);
  };
  if (object.raw("model_type") != Json("llama")) refuse("model_type", "\"llama\"");
  if (const Json names = object.raw("architectures"); !names.is_null() && names != Json::array({"LlamaForCausalLM"})) {
    refuse("architectures", "[\"LlamaForCausalLM\"]");
  }
  if (object.get<std::string>("hidden_act", "silu") != "silu") refuse("hidden_act", "\"silu\"");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (object.get<bool>(key, false)) refuse(key, "false");
  }
  if (object.get<std::int64_t>("pretraining_tp", 1) > 1) refuse("pretraining_tp", "1");
  if (object.get<double>("partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor", "1.0");
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (object.has(key)) refuse(key, "none: quantized weights must be converted first");
  }
}

/// rope_theta and the scaling, from "rope_scaling" (Transformers 4; wins in 5 too) or "rope_parameters" (5).
inline void read_rope(JsonObject& object, nn::LlamaConfig& config) {
  const std::string key =
      object.has("rope_scaling") && !object.raw("rope_scaling").empty() ? "rope_scaling" : "rope_parameters";
  config.rope_theta = object.get<double>("rope_theta", 10000.0);
  if (!object.has(key)) return;
  const Json json = object.raw(key);
  JsonObject rope(json, object.where() + ": " + key);
  config.rope_theta = rope.get<double>("rope_theta", config.rope_theta);
  if (rope.get<double>("partial_rotary_factor", 1.0) != 1.0) {
    throw InputError(rope.where(), ": partial_rotary_factor is not supported, expected 1.0");
  }
  const auto type = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
  nn::RopeScaling& scaling = config.rope_scaling;
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    throw InputError(rope.where(), ": rope_type \"", type, "\" is not supported, expected default, linear or llama3");
  }
  scaling.factor = rope.require<double>("factor");
  scaling.type = nn::RopeScaling::Type::linear;
  if (type == "llama3") {
    scaling.type = nn::RopeScaling::Type::llama3;
    scaling.low_freq_factor = rope.require<double>("low_freq_factor");
    scaling.high_freq_factor = rope.require<double>("high_freq_factor");
    scaling.original_max_position_embeddings =
        rope.get<std::int64_t>("original_max_position_embeddings", config.max_position_embeddings);
  }
}

/// An id or -1; a key that is absent means `fallback`, null and negative numbers mean none.
inline std::int64_t read_id(JsonObject& object, const Json& json, const std::string& key, std::int64_t fallback) {
  if (!json.contains(key)) return fallback;
  return std::max<std::int64_t>(-1, object.get<std::int64_t>(key, -1));
}

inline std::vector<std::int64_t> read_ids(JsonObject& object, const std::string& key) {
  const Json value = object.raw(key);
  if (value.is_null()) return {};
  if (!value.is_array()) return {object.require<std::int64_t>(key)};
  std::vector<std::int64_t> ids;
  for (const Json& id : value) {
    if (!id.is_number_integer()) throw InputError(object.where(), ": ", key, " holds ", short_dump(id));
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

inline Json id_json(std::int64_t id) { return id < 0 ? Json() : Json(id); }
inline Json ids_json(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return {};
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

}  // namespace detail

/// Reads config.json of a Llama model folder as Transformers does, with its defaults (rms_norm_eps 1e-6, bos 1, eos 2,
/// ... when absent). End-of-text ids of generation_config.json win where it has some. Keys that do not change what is
/// computed are ignored. Throws InputError that names the file and the key for another architecture, biases,
/// quantization, other rotary types, or shapes that do not fit.
inline nn::LlamaConfig read_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const Json json = read_json(path);
  JsonObject object(json, path.string());
  detail::refuse_foreign_models(object);
  nn::LlamaConfig config;
  config.vocab_size = object.require<std::int64_t>("vocab_size");
  config.hidden_size = object.require<std::int64_t>("hidden_size");
  config.intermediate_size = object.require<std::int64_t>("intermediate_size");
  config.num_hidden_layers = object.require<std::int64_t>("num_hidden_layers");
  config.num_attention_heads = object.require<std::int64_t>("num_attention_heads");
  config.num_key_value_heads = object.get<std::int64_t>("num_key_value_heads", config.num_attention_heads);
  if (object.has("head_dim")) {
    config.head_dim = object.require<std::int64_t>("head_dim");
  } else if (config.num_attention_heads > 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      throw InputError(path.string(), ": hidden_size ", config.hidden_size,
                       " is not a multiple of num_attention_heads ", config.num_attention_heads);
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  config.max_position_embeddings = object.get<std::int64_t>("max_position_embeddings", 2048);
  config.rms_norm_eps = object.get<double>("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = object.get<bool>("tie_word_embeddings", false);
  config.initializer_range = object.get<double>("initializer_range", 0.02);
  detail::read_rope(object, config);
  config.bos_token_id = detail::read_id(object, json, "bos_token_id", 1);
  config.pad_token_id = detail::read_id(object, json, "pad_token_id", -1);
  config.eos_token_ids =
      json.contains("eos_token_id") ? detail::read_ids(object, "eos_token_id") : std::vector<std::int64_t>{2};
  if (const auto generation = folder / "generation_config.json"; std::filesystem::exists(generation)) {
    const Json generation_json = read_json(generation);
    JsonObject generation_object(generation_json, generation.string());
    if (auto ids = detail::read_ids(generation_object, "eos_token_id"); !ids.empty()) {
      config.eos_token_ids = std::move(ids);
    }
  }
  std::erase_if(config.eos_token_ids, [](std::int64_t id) { return id < 0; });
  check_config(config, path.string());
  return config;
}

/// Writes config.json and generation_config.json so that Transformers 4 and 5 load the folder as LlamaForCausalLM.
/// `dtype` is the type of the weights beside it. Throws InputError when check_config refuses the config.
inline void write_config(const std::filesystem::path& folder, const nn::LlamaConfig& config, at::ScalarType dtype) {
  const auto path = folder / "config.json";
  check_config(config, path.string());
  const nn::RopeScaling& rope = config.rope_scaling;
  Json scaling;
  if (rope.type == nn::RopeScaling::Type::linear) {
    scaling = {{"factor", rope.factor}, {"rope_type", "linear"}, {"type", "linear"}};
  } else if (rope.type == nn::RopeScaling::Type::llama3) {
    scaling = {{"factor", rope.factor},
               {"high_freq_factor", rope.high_freq_factor},
               {"low_freq_factor", rope.low_freq_factor},
               {"original_max_position_embeddings", rope.original_max_position_embeddings},
               {"rope_type", "llama3"}};
  }
  const Json bos = detail::id_json(config.bos_token_id), pad = detail::id_json(config.pad_token_id);
  const Json eos = detail::ids_json(config.eos_token_ids);
  write_json(path, Json{{"architectures", Json::array({"LlamaForCausalLM"})},
                        {"attention_bias", false},
                        {"attention_dropout", 0.0},
                        {"bos_token_id", bos},
                        {"eos_token_id", eos},
                        {"head_dim", config.head_dim},
                        {"hidden_act", "silu"},
                        {"hidden_size", config.hidden_size},
                        {"initializer_range", config.initializer_range},
                        {"intermediate_size", config.intermediate_size},
                        {"max_position_embeddings", config.max_position_embeddings},
                        {"mlp_bias", false},
                        {"model_type", "llama"},
                        {"num_attention_heads", config.num_attention_heads},
                        {"num_hidden_layers", config.num_hidden_layers},
                        {"num_key_value_heads", config.num_key_value_heads},
                        {"pad_token_id", pad},
                        {"pretraining_tp", 1},
                        {"rms_norm_eps", config.rms_norm_eps},
                        {"rope_scaling", scaling},
                        {"rope_theta", config.rope_theta},
                        {"tie_word_embeddings", config.tie_word_embeddings},
                        {"torch_dtype", io::torch_dtype_name(dtype)},
                        {"use_cache", true},
                        {"vocab_size", config.vocab_size}});
  Json generation = Json::object();
  if (!bos.is_null()) generation["bos_token_id"] = bos;
  if (!eos.is_null()) generation["eos_token_id"] = eos;
  if (!pad.is_null()) generation["pad_token_id"] = pad;
  write_json(folder / "generation_config.json", generation);
}

}  // namespace ilme::hf
