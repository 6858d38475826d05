/// The rotary part of config.json: "rope_scaling" and "rope_theta" of Transformers 4, "rope_parameters" of 5.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::hf::detail {

inline constexpr std::pair<nn::RopeScaling::Type, const char*> kRopeTypes[] = {
    {nn::RopeScaling::Type::none, "default"},
    {nn::RopeScaling::Type::linear, "linear"},
    {nn::RopeScaling::Type::dynamic, "dynamic"},
    {nn::RopeScaling::Type::llama3, "llama3"},
    {nn::RopeScaling::Type::yarn, "yarn"}};

/// Throws InputError that opens with `where` and names the field when a number of the rotary embedding is out of range.
inline void check_rope(const nn::LlamaConfig& config, const std::string& where) {
  using Type = nn::RopeScaling::Type;
  const nn::RopeScaling& rope = config.rope_scaling;
  if (config.head_dim % 2 != 0) {
    throw InputError(where, ": head_dim ", config.head_dim, " is odd; rotary embeddings need pairs");
  }
  std::vector<std::pair<const char*, double>> positive{{"rope_theta", config.rope_theta}};
  if (rope.type != Type::none) positive.emplace_back("rope_scaling factor", rope.factor);
  if (rope.type == Type::llama3) positive.emplace_back("rope_scaling low_freq_factor", rope.low_freq_factor);
  if (rope.type == Type::llama3 || rope.type == Type::yarn) {
    positive.emplace_back("rope_scaling original_max_position_embeddings",
                          static_cast<double>(rope.original_max_position_embeddings));
  }
  if (rope.type == Type::yarn) {
    positive.emplace_back("rope_scaling beta_fast", rope.beta_fast);
    positive.emplace_back("rope_scaling beta_slow", rope.beta_slow);
    if (rope.attention_factor) positive.emplace_back("rope_scaling attention_factor", *rope.attention_factor);
  }
  for (const auto& [name, value] : positive) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InputError(where, ": ", name, " is ", value, ", expected a number above 0");
    }
  }
  if (rope.type == Type::llama3 && !(rope.high_freq_factor > rope.low_freq_factor)) {
    throw InputError(where, ": rope_scaling high_freq_factor ", rope.high_freq_factor,
                     " must be above low_freq_factor ", rope.low_freq_factor);
  }
  if (rope.type == Type::yarn && !(rope.beta_fast >= rope.beta_slow)) {
    throw InputError(where, ": rope_scaling beta_fast ", rope.beta_fast, " must not be below beta_slow ",
                     rope.beta_slow);
  }
  if (rope.type == Type::yarn && config.rope_theta == 1.0) {
    throw InputError(where, ": rope_theta is 1, which has no yarn frequencies");
  }
  if (rope.type == Type::dynamic && config.head_dim < 4) {
    throw InputError(where, ": head_dim ", config.head_dim, " is too small for the rope_type \"dynamic\"");
  }
}

/// The type and its numbers from `rope`, the members of rope_scaling or rope_parameters.
inline void read_rope_scaling(JsonObject& rope, nn::LlamaConfig& config) {
  using Type = nn::RopeScaling::Type;
  nn::RopeScaling& scaling = config.rope_scaling;
  const auto name = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
  bool known = false;
  for (const auto& [type, type_name] : kRopeTypes) {
    if (name == type_name) {
      scaling.type = type;
      known = true;
    }
  }
  if (!known) {
    throw InputError(rope.where(), ": rope_type \"", name,
                     "\" is not supported, expected default, linear, dynamic, llama3 or yarn");
  }
  if (scaling.type == Type::none) return;
  if (scaling.type == Type::llama3 || scaling.type == Type::yarn) {
    scaling.original_max_position_embeddings =
        rope.get<std::int64_t>("original_max_position_embeddings", scaling.original_max_position_embeddings);
  }
  if (scaling.type == Type::yarn) {
    // A null factor means the ratio of the two lengths.
    scaling.factor = rope.get<double>("factor", static_cast<double>(config.max_position_embeddings) /
                                                    static_cast<double>(scaling.original_max_position_embeddings));
    const auto number_or = [&](const char* key, double fallback) {
      const auto value = rope.get<double>(key, 0.0);
      return value == 0 ? fallback : value;
    };
    scaling.beta_fast = number_or("beta_fast", scaling.beta_fast);
    scaling.beta_slow = number_or("beta_slow", scaling.beta_slow);
    if (rope.has("attention_factor")) scaling.attention_factor = rope.require<double>("attention_factor");
    scaling.mscale = rope.get<double>("mscale", 0.0);
    scaling.mscale_all_dim = rope.get<double>("mscale_all_dim", 0.0);
    scaling.truncate = rope.get<bool>("truncate", true);
    return;
  }
  scaling.factor = rope.require<double>("factor");
  if (scaling.type == Type::llama3) {
    scaling.low_freq_factor = rope.require<double>("low_freq_factor");
    scaling.high_freq_factor = rope.require<double>("high_freq_factor");
  }
}

/// rope_theta and the scaling, from "rope_scaling" (Transformers 4; wins in 5 too) or "rope_parameters" (5).
/// config.max_position_embeddings must be known.
inline void read_rope(JsonObject& object, nn::LlamaConfig& config) {
  const std::string key =
      object.has("rope_scaling") && !object.raw("rope_scaling").empty() ? "rope_scaling" : "rope_parameters";
  config.rope_theta = object.get<double>("rope_theta", 10000.0);
  config.rope_scaling.original_max_position_embeddings = config.max_position_embeddings;
  if (!object.has(key)) return;
  Json json = object.raw(key);
  // Beside them it wins over the one within, in Transformers 5.
  if (const Json original = object.raw("original_max_position_embeddings"); !original.is_null() && json.is_object()) {
    json["original_max_position_embeddings"] = original;
  }
  JsonObject rope(json, object.where() + ": " + key);
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      throw InputError(rope.where(), ": rotary parameters by type of layer (\"", name, "\") are not supported");
    }
  }
  config.rope_theta = rope.get<double>("rope_theta", config.rope_theta);
  if (rope.get<double>("partial_rotary_factor", 1.0) != 1.0) {
    throw InputError(rope.where(), ": partial_rotary_factor is not supported, expected 1.0");
  }
  read_rope_scaling(rope, config);
}

/// The value of "rope_scaling", which both versions of Transformers read; null without scaling.
inline Json rope_scaling_json(const nn::RopeScaling& rope) {
  using Type = nn::RopeScaling::Type;
  switch (rope.type) {
    case Type::none:
      return {};
    case Type::linear:  // "type" is what Transformers called it before 4.43
      return {{"factor", rope.factor}, {"rope_type", "linear"}, {"type", "linear"}};
    case Type::dynamic:
      return {{"factor", rope.factor}, {"rope_type", "dynamic"}, {"type", "dynamic"}};
    case Type::llama3:
      return {{"factor", rope.factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings},
              {"rope_type", "llama3"}};
    case Type::yarn:
      break;
  }
  Json json{{"beta_fast", rope.beta_fast},
            {"beta_slow", rope.beta_slow},
            {"factor", rope.factor},
            {"original_max_position_embeddings", rope.original_max_position_embeddings},
            {"rope_type", "yarn"},
            {"truncate", rope.truncate},
            {"type", "yarn"}};
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.mscale != 0) json["mscale"] = rope.mscale;
  if (rope.mscale_all_dim != 0) json["mscale_all_dim"] = rope.mscale_all_dim;
  return json;
}

}  // namespace ilme::hf::detail
