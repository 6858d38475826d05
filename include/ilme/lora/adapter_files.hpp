/// Adapter folders in PEFT's layout: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapter_config.hpp>

namespace ilme::lora {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";

using Warn = std::function<void(const std::string&)>;

/// Prints "warning: ..." as one line on stderr.
inline void warn_on_stderr(const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); }

namespace detail {

inline constexpr std::string_view kPeftPrefix = "base_model.model.";

/// Null, false, 0, "" and empty containers: a feature that is not used.
inline bool is_unused(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json(0) || value == Json("") ||
         (value.is_structured() && value.empty());
}

/// Keys of PEFT's LoraConfig that make something else than plain LoRA of it.
inline constexpr const char* kForeignKeys[] = {"use_dora",
                                               "fan_in_fan_out",
                                               "lora_bias",
                                               "exclude_modules",
                                               "layers_to_transform",
                                               "layer_replication",
                                               "target_parameters",
                                               "trainable_token_indices",
                                               "alora_invocation_tokens",
                                               "megatron_config",
                                               "use_qalora",
                                               "use_bdlora",
                                               "arrow_config",
                                               "kasa_config",
                                               "monteclora_config",
                                               "velora_config"};

/// Keys that do not change what a finished adapter computes.
inline constexpr const char* kHarmlessKeys[] = {
    "auto_mapping", "corda_config",   "eva_config",    "inference_mode", "layers_pattern",
    "loftq_config", "lora_ga_config", "megatron_core", "peft_version",   "qalora_group_size",
    "revision",     "task_type",      "runtime_config"};

inline void refuse_other_adapters(JsonObject& object) {
  const auto refuse = [&](const char* key, const std::string& expected) {
    throw InputError(object.where(), ": ", key, " ", ilme::detail::short_dump(object.raw(key)),
                     " is not supported, expected ", expected);
  };
  if (object.raw("peft_type") != Json("LORA")) refuse("peft_type", "\"LORA\"");
  if (object.get<std::string>("bias", "none") != "none") refuse("bias", "\"none\"");
  for (const char* key : kForeignKeys) {
    if (!is_unused(object.raw(key))) refuse(key, "none");
  }
  // Initialisations that also changed the base model's weights: the adapter does not fit the original ones.
  static const std::set<std::string> kPlainStarts{"gaussian", "eva", "orthogonal", "mica"};
  const Json start = object.raw("init_lora_weights");
  if (start.is_string() && !kPlainStarts.contains(start.get<std::string>())) {
    refuse("init_lora_weights", "true, false, gaussian, eva or orthogonal");
  }
}

template <class Value>
std::vector<std::pair<std::string, Value>> read_patterns(JsonObject& object, const std::string& key) {
  std::vector<std::pair<std::string, Value>> patterns;
  const Json json = object.raw(key);
  if (json.is_null()) return patterns;
  JsonObject values(json, object.where() + ": " + key);
  for (const auto& [pattern, value] : json.items()) patterns.emplace_back(pattern, values.require<Value>(pattern));
  return patterns;
}

/// 28 rather than 28.0: PEFT's fields are integers.
inline Json number_json(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

template <class Value>
Json patterns_json(const std::vector<std::pair<std::string, Value>>& patterns) {
  Json json = Json::object();
  for (const auto& [pattern, value] : patterns) json[pattern] = number_json(static_cast<double>(value));
  return json;
}

/// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight"; "" for any other name.
inline std::string module_of(const std::string& name) {
  for (const std::string_view ending : {".lora_A.weight", ".lora_B.weight"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return "";
}

/// The weight of a module that is saved whole: the name, less ".weight", when it is one that can be; "" for any other.
inline std::string whole_module_of(const std::string& name) {
  for (const std::string module : {kEmbeddingModule, kHeadModule}) {
    if (name == module + ".weight") return module;
  }
  return "";
}

/// The weights of modules that are saved whole must be those that the configuration names. A head that is tied to the
/// embedding is a second copy of it or left out.
inline void check_whole_modules(const AdapterConfig& config, const io::NamedTensors& tensors,
                                const std::string& where) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : tensors) {
    const std::string module = whole_module_of(name);
    if (module.empty()) continue;
    const bool tied = config.ensure_weight_tying && module == kHeadModule;
    if (!saves_whole(config, module) && !tied) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " is of a module that modules_to_save does not name");
    }
    if (tensor.dim() != 2 || !tensor.is_floating_point()) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " is not a floating-point matrix");
    }
    found.emplace(module, tensor);
  }
  for (const std::string module : {kEmbeddingModule, kHeadModule}) {
    const bool tied = config.ensure_weight_tying && module == kHeadModule;
    if (saves_whole(config, module) && !tied && !found.contains(module)) {
      throw InputError(where, ": tensor ", io::quoted_name(module + ".weight"),
                       " is missing, modules_to_save names it");
    }
  }
}

/// Throws InputError unless the tensors are pairs A [rank, in], B [out, rank], each of the rank that the configuration
/// gives its module, which it selects, and the weights of modules that it saves whole.
inline std::vector<std::string> check_adapter_tensors(const AdapterConfig& config, const io::NamedTensors& tensors,
                                                      const std::string& where) {
  check_whole_modules(config, tensors, where);
  std::map<std::string, int> modules;
  for (const auto& [name, tensor] : tensors) {
    if (!whole_module_of(name).empty()) continue;
    const std::string module = module_of(name);
    if (module.empty()) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " is not lora_A.weight or lora_B.weight of a module");
    }
    if (!selects(config, module)) {
      throw InputError(where, ": tensor ", io::quoted_name(name),
                       " is of a module that target_modules does not select");
    }
    const bool is_a = name.ends_with(".lora_A.weight");
    const std::int64_t rank = rank_for(config, module);
    if (tensor.dim() != 2 || tensor.size(is_a ? 0 : 1) != rank) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " has shape ", Json(tensor.sizes().vec()).dump(),
                       ", the configuration's rank for it is ", rank);
    }
    if (!tensor.is_floating_point()) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " is not floating point");
    }
    modules[module] |= is_a ? 1 : 2;
  }
  std::vector<std::string> names;
  for (const auto& [module, parts] : modules) {
    if (parts != 3) throw InputError(where, ": ", module, " lacks lora_", parts == 1 ? "B" : "A", ".weight");
    names.push_back(module);
  }
  return names;
}

}  // namespace detail

/// Reads adapter_config.json. Throws InputError that names the key for anything but plain LoRA (DoRA, trained biases or
/// whole modules other than embeddings and head, other adapter types, ...). An unknown key that is set is reported
/// through `warn`.
inline AdapterConfig read_adapter_config(const std::filesystem::path& folder, const Warn& warn = warn_on_stderr) {
  const auto path = folder / kAdapterConfigName;
  const Json json = read_json(path);
  JsonObject object(json, path.string());
  detail::refuse_other_adapters(object);
  AdapterConfig config;
  config.base_model_name_or_path = object.get<std::string>("base_model_name_or_path", "");
  config.rank = object.get<std::int64_t>("r", 8);
  config.alpha = object.get<double>("lora_alpha", 8.0);
  config.dropout = object.get<double>("lora_dropout", 0.0);
  config.use_rslora = object.get<bool>("use_rslora", false);
  if (object.raw("target_modules").is_string()) {
    config.target_pattern = object.require<std::string>("target_modules");
  } else {
    config.target_modules = object.get<std::vector<std::string>>("target_modules", {});
  }
  config.rank_pattern = detail::read_patterns<std::int64_t>(object, "rank_pattern");
  config.alpha_pattern = detail::read_patterns<double>(object, "alpha_pattern");
  if (!object.raw("modules_to_save").is_null()) {
    config.modules_to_save = object.require<std::vector<std::string>>("modules_to_save");
  }
  config.ensure_weight_tying = object.get<bool>("ensure_weight_tying", false);
  check_adapter_config(config, path.string());

  std::set<std::string> known{"peft_type",
                              "bias",
                              "init_lora_weights",
                              "base_model_name_or_path",
                              "r",
                              "lora_alpha",
                              "lora_dropout",
                              "use_rslora",
                              "rank_pattern",
                              "target_modules",
                              "alpha_pattern",
                              "modules_to_save",
                              "ensure_weight_tying"};
  known.insert(std::begin(detail::kForeignKeys), std::end(detail::kForeignKeys));
  known.insert(std::begin(detail::kHarmlessKeys), std::end(detail::kHarmlessKeys));
  for (const auto& [key, value] : json.items()) {
    if (warn && !known.contains(key) && !detail::is_unused(value)) {
      warn(concat(path.string(), ": key \"", key, "\" is not known and has no effect"));
    }
  }
  return config;
}

/// The adapter's tensors under their module's full names ("model.layers.0.self_attn.q_proj.lora_A.weight",
/// "model.embed_tokens.weight"), in read-only mapped memory. Throws InputError that names the file and the tensor when
/// one is not LoRA's, a partner is missing, or a rank is not the configuration's. Pattern keys that match no module are
/// reported through `warn`.
inline io::NamedTensors read_adapter_tensors(const std::filesystem::path& folder, const AdapterConfig& config,
                                             const Warn& warn = warn_on_stderr) {
  const io::SafetensorsFile file(folder / kAdapterWeightsName);
  const std::string where = file.path().string();
  io::NamedTensors tensors;
  for (const std::string& name : file.names()) {
    if (!name.starts_with(detail::kPeftPrefix)) {
      throw InputError(where, ": tensor ", io::quoted_name(name), " does not start with ", detail::kPeftPrefix);
    }
    tensors.emplace_back(name.substr(detail::kPeftPrefix.size()), file.tensor(name));
  }
  const auto modules = detail::check_adapter_tensors(config, tensors, where);
  if (modules.empty()) throw InputError(where, ": holds no adapter");
  for (const std::string& key : unmatched_patterns(config, modules)) {
    if (warn) warn(concat((folder / kAdapterConfigName).string(), ": ", key, " matches no module of the adapter"));
  }
  return tensors;
}

namespace detail {

/// For a model that trains its embedding and has no head of its own: the head in the file must be the embedding.
inline void drop_tied_head(std::map<std::string, at::Tensor>& tensors, const AdapterConfig& config,
                           const std::string& where) {
  const std::string name = std::string(kHeadModule) + ".weight";
  const auto head = tensors.extract(name);
  const auto embedding = tensors.find(std::string(kEmbeddingModule) + ".weight");
  if (embedding == tensors.end()) return;
  const bool same = head.empty() ? config.ensure_weight_tying : at::equal(head.mapped(), embedding->second);
  if (same) return;
  throw InputError(where, ": the embeddings were trained apart from the head (",
                   head.empty() ? "ensure_weight_tying is not set" : "their tensors differ",
                   "), which the model ties to them; expected a model with a head of its own, or equal tensors");
}

}  // namespace detail

/// Copies the adapter in `folder` into `targets`, the model's adapter parameters by full name, converting their
/// floating-point type. Nothing is changed unless names and shapes agree exactly; InputError names what does not.
inline void load_adapter_tensors(const std::filesystem::path& folder, const io::NamedTensors& targets,
                                 const Warn& warn = warn_on_stderr) {
  const AdapterConfig config = read_adapter_config(folder, {});
  std::map<std::string, at::Tensor> found;
  for (auto& [name, tensor] : read_adapter_tensors(folder, config, warn)) found.emplace(name, tensor);
  const std::string where = (folder / kAdapterWeightsName).string();
  const auto names_target = [&](const std::string& module) {
    const auto is = [&](const auto& target) { return target.first == module + ".weight"; };
    return std::any_of(targets.begin(), targets.end(), is);
  };
  if (names_target(kEmbeddingModule) && !names_target(kHeadModule)) detail::drop_tied_head(found, config, where);
  std::set<std::string> wanted;
  for (const auto& [name, target] : targets) {
    wanted.insert(name);
    const auto tensor = found.find(name);
    if (tensor == found.end()) throw InputError(where, ": tensor ", detail::kPeftPrefix, name, " is missing");
    if (tensor->second.sizes() != target.sizes()) {
      throw InputError(where, ": tensor ", detail::kPeftPrefix, name, " has shape ",
                       Json(tensor->second.sizes().vec()).dump(), ", the model expects ",
                       Json(target.sizes().vec()).dump());
    }
  }
  for (const auto& [name, tensor] : found) {
    if (!wanted.contains(name)) {
      throw InputError(where, ": tensor ", io::quoted_name(std::string(detail::kPeftPrefix) + name),
                       " has no place in the model");
    }
  }
  const c10::NoGradGuard no_grad;
  for (const auto& [name, target] : targets) at::Tensor(target).copy_(found.at(name));
}

/// Writes `tensors` (names as read_adapter_tensors gives them) and `config` as a folder that PEFT loads. Throws
/// InputError when they do not agree, RunError when writing fails.
inline void save_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                         const io::NamedTensors& tensors) {
  const auto path = folder / kAdapterConfigName;
  check_adapter_config(config, path.string());
  detail::check_adapter_tensors(config, tensors, (folder / kAdapterWeightsName).string());
  io::NamedTensors named;
  const auto head = std::find_if(tensors.begin(), tensors.end(),
                                 [](const auto& item) { return detail::whole_module_of(item.first) == kHeadModule; });
  for (const auto& [name, tensor] : tensors) {
    named.emplace_back(std::string(detail::kPeftPrefix) + name, tensor);
    if (config.ensure_weight_tying && head == tensors.end() && detail::whole_module_of(name) == kEmbeddingModule) {
      named.emplace_back(concat(detail::kPeftPrefix, kHeadModule, ".weight"), tensor);  // PEFT wants both
    }
  }
  io::save_safetensors(folder / kAdapterWeightsName, named);
  const Json targets = config.target_pattern.empty() ? Json(config.target_modules) : Json(config.target_pattern);
  write_json(path, Json{{"alpha_pattern", detail::patterns_json(config.alpha_pattern)},
                        {"auto_mapping", nullptr},
                        {"base_model_name_or_path", config.base_model_name_or_path},
                        {"bias", "none"},
                        {"ensure_weight_tying", config.ensure_weight_tying},
                        {"fan_in_fan_out", false},
                        {"inference_mode", true},
                        {"init_lora_weights", true},
                        {"layers_pattern", nullptr},
                        {"layers_to_transform", nullptr},
                        {"lora_alpha", detail::number_json(config.alpha)},
                        {"lora_dropout", config.dropout},
                        {"modules_to_save", config.modules_to_save.empty() ? Json() : Json(config.modules_to_save)},
                        {"peft_type", "LORA"},
                        {"r", config.rank},
                        {"rank_pattern", detail::patterns_json(config.rank_pattern)},
                        {"revision", nullptr},
                        {"target_modules", targets},
                        {"task_type", "CAUSAL_LM"},
                        {"use_rslora", config.use_rslora}});
}

}  // namespace ilme::lora
