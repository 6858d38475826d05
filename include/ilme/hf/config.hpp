/// config.json and generation_config.json of Hugging Face Transformers 4 and 5, to and from nn::LlamaConfig.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/hf/foreign_weights.hpp>
#include <ilme/hf/rope_config.hpp>
#include <ilme/io/dtype.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::hf {

inline constexpr const char* kGenerationConfigName = "generation_config.json";

namespace detail {

using ilme::detail::short_dump;

/// What the architectures are called in config.json.
struct ArchitectureNames {
  nn::Architecture architecture;
  const char *model_type, *class_name;
};
inline constexpr ArchitectureNames kArchitectures[] = {{nn::Architecture::llama, "llama", "LlamaForCausalLM"},
                                                       {nn::Architecture::mistral, "mistral", "MistralForCausalLM"},
                                                       {nn::Architecture::qwen2, "qwen2", "Qwen2ForCausalLM"}};

inline const ArchitectureNames& names_of(nn::Architecture architecture) {
  return kArchitectures[static_cast<std::size_t>(architecture)];
}

}  // namespace detail

/// Throws InputError that opens with `where` and names the field when the shapes do not fit each other, a number is out
/// of range, or the biases are not those of the architecture.
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
  if (!(config.rms_norm_eps > 0) || !std::isfinite(config.rms_norm_eps)) {
    throw InputError(where, ": rms_norm_eps is ", config.rms_norm_eps, ", expected a number above 0");
  }
  if (config.sliding_window < 0) {
    throw InputError(where, ": sliding_window is ", config.sliding_window, ", expected 1 or more, or null");
  }
  detail::check_rope(config, where);
  const bool fits = config.architecture == nn::Architecture::llama
                        ? config.attention_bias == config.attention_output_bias && config.sliding_window == 0
                        : config.attention_bias == (config.architecture == nn::Architecture::qwen2) &&
                              !config.attention_output_bias && !config.mlp_bias;
  if (!fits) {
    throw InputError(where, ": ", detail::names_of(config.architecture).class_name,
                     " has no model with these biases and sliding_window");
  }
}

namespace detail {

/// The architecture that model_type and architectures name; refuses what would change the computation in a way that
/// this library does not compute.
inline nn::Architecture read_architecture(JsonObject& object) {
  const auto refuse = [&](const std::string& key, const std::string& expected) {
    throw InputError(object.where(), ": ", key, " ", short_dump(object.raw(key)), " is not supported, expected ",
                     expected);
  };
  const Json model_type = object.raw("model_type");
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const auto& names) { return model_type == Json(names.model_type); });
  if (found == std::end(kArchitectures)) refuse("model_type", "\"llama\", \"mistral\" or \"qwen2\"");
  if (const Json names = object.raw("architectures"); !names.is_null() && names != Json::array({found->class_name})) {
    refuse("architectures", short_dump(Json::array({found->class_name})));
  }
  if (const auto act = object.get<std::string>("hidden_act", "silu"); act != "silu" && act != "swish") {
    refuse("hidden_act", "\"silu\"");
  }
  if (object.get<std::int64_t>("pretraining_tp", 1) > 1) refuse("pretraining_tp", "1");
  if (object.get<double>("partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor", "1.0");
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (object.has(key)) refuse(key, "none: quantized weights must be converted first");
  }
  if (const Json types = object.raw("layer_types"); !types.is_null()) {
    const bool windows = found->architecture == nn::Architecture::qwen2;
    for (const Json& type : types) {
      if (type != Json("full_attention") && !(windows && type == Json("sliding_attention"))) {
        refuse("layer_types", windows ? "full_attention and sliding_attention" : "full_attention");
      }
    }
  }
  return found->architecture;
}

/// The window of the layers that have one; 0 when none has.
inline std::int64_t read_sliding_window(JsonObject& object, const Json& json, const nn::LlamaConfig& config) {
  const auto window = [&] {
    if (!json.contains("sliding_window")) return std::int64_t{4096};
    const auto value = object.get<std::int64_t>("sliding_window", 0);
    if (value < 1 && object.has("sliding_window")) {
      throw InputError(object.where(), ": sliding_window is ", value, ", expected 1 or more, or null");
    }
    return value;
  };
  if (config.architecture == nn::Architecture::mistral) return window();
  if (config.architecture != nn::Architecture::qwen2) return 0;
  const Json types = object.raw("layer_types");
  const bool windowed = types.is_array()
                            ? std::find(types.begin(), types.end(), Json("sliding_attention")) != types.end()
                            : object.get<std::int64_t>("max_window_layers", 28) < config.num_hidden_layers;
  return windowed && object.get<bool>("use_sliding_window", false) ? window() : 0;
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

/// A JSON object of a folder; an empty one when there is no folder or no such file.
inline Json read_if_there(const std::filesystem::path& folder, const char* name) {
  std::error_code code;
  if (folder.empty() || !std::filesystem::exists(folder / name, code)) return Json::object();
  Json json = read_json(folder / name);
  JsonObject(json, (folder / name).string());  // refuses what is no object
  return json;
}

}  // namespace detail

/// Reads config.json of a model folder (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM) as Transformers does,
/// with its defaults (rms_norm_eps 1e-6, ... when absent). End-of-text ids of generation_config.json win where it has
/// some; suppress_tokens come from there. Keys that do not change what is computed are ignored. Throws InputError that
/// names the file and the key for another architecture, quantization, other rotary types or kinds of layers, or shapes
/// that do not fit.
inline nn::LlamaConfig read_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  std::error_code code;
  if (!std::filesystem::exists(path, code)) refuse_foreign_weights(folder);
  const Json json = read_json(path);
  JsonObject object(json, path.string());
  nn::LlamaConfig config;
  config.architecture = detail::read_architecture(object);
  const bool llama = config.architecture == nn::Architecture::llama;
  const bool mistral = config.architecture == nn::Architecture::mistral;
  const bool qwen2 = config.architecture == nn::Architecture::qwen2;
  config.vocab_size = object.require<std::int64_t>("vocab_size");
  config.hidden_size = object.require<std::int64_t>("hidden_size");
  config.intermediate_size = object.require<std::int64_t>("intermediate_size");
  config.num_hidden_layers = object.require<std::int64_t>("num_hidden_layers");
  config.num_attention_heads = object.require<std::int64_t>("num_attention_heads");
  // An absent key is the class's default, null is as many as the queries have.
  const bool own_default = !json.contains("num_key_value_heads") && !llama;
  config.num_key_value_heads =
      own_default ? (mistral ? 8 : 32) : object.get<std::int64_t>("num_key_value_heads", config.num_attention_heads);
  if (object.has("head_dim")) {
    config.head_dim = object.require<std::int64_t>("head_dim");
  } else if (config.num_attention_heads > 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      throw InputError(path.string(), ": hidden_size ", config.hidden_size,
                       " is not a multiple of num_attention_heads ", config.num_attention_heads);
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  config.max_position_embeddings = object.get<std::int64_t>("max_position_embeddings", llama     ? 2048
                                                                                       : mistral ? 4096 * 32
                                                                                                 : 32768);
  config.rms_norm_eps = object.get<double>("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = object.get<bool>("tie_word_embeddings", false);
  config.initializer_range = object.get<double>("initializer_range", 0.02);
  config.attention_bias = llama ? object.get<bool>("attention_bias", false) : qwen2;
  config.attention_output_bias = llama && config.attention_bias;
  config.mlp_bias = llama && object.get<bool>("mlp_bias", false);
  config.sliding_window = detail::read_sliding_window(object, json, config);
  detail::read_rope(object, config);
  config.bos_token_id = detail::read_id(object, json, "bos_token_id", qwen2 ? -1 : 1);
  config.pad_token_id = detail::read_id(object, json, "pad_token_id", -1);
  if (json.contains("eos_token_id")) {
    config.eos_token_ids = detail::read_ids(object, "eos_token_id");
  } else if (!qwen2) {
    config.eos_token_ids = {2};
  }
  if (const auto generation = folder / kGenerationConfigName; std::filesystem::exists(generation)) {
    const Json generation_json = read_json(generation);
    JsonObject generation_object(generation_json, generation.string());
    if (auto ids = detail::read_ids(generation_object, "eos_token_id"); !ids.empty()) {
      config.eos_token_ids = std::move(ids);
    }
    config.suppress_tokens = detail::read_ids(generation_object, "suppress_tokens");
  }
  std::erase_if(config.eos_token_ids, [](std::int64_t id) { return id < 0; });
  check_config(config, path.string());
  return config;
}

/// Writes config.json and generation_config.json so that Transformers 4 and 5 load the folder as the same architecture.
/// `dtype` is the type of the weights beside it. What those files of `source`, the folder that the model comes from,
/// say beyond the configuration (temperature, top_p, keys of one's own) is kept. Throws InputError when check_config
/// refuses the config.
inline void write_config(const std::filesystem::path& folder, const nn::LlamaConfig& config, at::ScalarType dtype,
                         const std::filesystem::path& source = {}) {
  const auto path = folder / "config.json";
  check_config(config, path.string());
  const auto& names = detail::names_of(config.architecture);
  const Json bos = detail::id_json(config.bos_token_id), pad = detail::id_json(config.pad_token_id);
  const Json eos = detail::ids_json(config.eos_token_ids);

  Json json = detail::read_if_there(source, "config.json");
  const bool kept = !json.empty();
  // Other names of what is written below.
  for (const char* key : {"dtype", "rope_parameters", "original_max_position_embeddings"}) json.erase(key);
  json.update(Json{{"architectures", Json::array({names.class_name})},
                   {"bos_token_id", bos},
                   {"eos_token_id", eos},
                   {"head_dim", config.head_dim},
                   {"hidden_act", "silu"},
                   {"hidden_size", config.hidden_size},
                   {"initializer_range", config.initializer_range},
                   {"intermediate_size", config.intermediate_size},
                   {"max_position_embeddings", config.max_position_embeddings},
                   {"model_type", names.model_type},
                   {"num_attention_heads", config.num_attention_heads},
                   {"num_hidden_layers", config.num_hidden_layers},
                   {"num_key_value_heads", config.num_key_value_heads},
                   {"pad_token_id", pad},
                   {"rms_norm_eps", config.rms_norm_eps},
                   {"rope_scaling", detail::rope_scaling_json(config.rope_scaling)},
                   {"rope_theta", config.rope_theta},
                   {"tie_word_embeddings", config.tie_word_embeddings},
                   {"torch_dtype", io::torch_dtype_name(dtype)},
                   {"vocab_size", config.vocab_size}});
  if (config.architecture == nn::Architecture::llama) {
    json.update(Json{{"attention_bias", config.attention_bias}, {"mlp_bias", config.mlp_bias}});
  } else {
    json["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json();
  }
  if (config.architecture == nn::Architecture::qwen2) {
    json["use_sliding_window"] = config.sliding_window > 0;
    if (!kept) json["max_window_layers"] = 0;
  }
  write_json(path, json);

  Json generation = detail::read_if_there(source, kGenerationConfigName);
  const auto set = [&](const char* key, const Json& value) {
    if (value.is_null()) {
      generation.erase(key);
    } else {
      generation[key] = value;
    }
  };
  set("bos_token_id", bos);
  set("eos_token_id", eos);
  set("pad_token_id", pad);
  set("suppress_tokens", config.suppress_tokens.empty() ? Json() : Json(config.suppress_tokens));
  write_json(folder / kGenerationConfigName, generation);
}

}  // namespace ilme::hf
