/// Putting adapters on a model: attach, load, save, merge.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/lora/adapter_config.hpp>
#include <ilme/lora/adapter_files.hpp>
#include <ilme/lora/lora.hpp>
#include <ilme/nn/llama.hpp>

namespace ilme::lora {

namespace detail {

/// Whether a parameter is the weight of a module that is saved whole.
inline bool is_saved_whole(const AdapterConfig& config, const std::string& parameter) {
  const std::string module = whole_module_of(parameter);
  return !module.empty() && saves_whole(config, module);
}

}  // namespace detail

/// Calls `visit(full module name, Lora<nn::Linear>&)` for every linear map of `model` that can carry an adapter.
template <class Model, class Visit>
void for_each_lora(Model& model, Visit&& visit) {
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Lora<nn::Linear>*>(item.value().get())) visit(item.key(), *layer);
  }
}

/// Freezes every parameter but those of the modules that are saved whole, and attaches a fresh adapter, drawn from
/// `seed`, where the configuration selects a linear map. Returns how many; InputError when there is none, and for a
/// head to be trained whole that is tied to an embedding which is not.
template <class Model>
std::int64_t attach_adapters(Model& model, const AdapterConfig& config, std::uint64_t seed = 0) {
  for (auto& parameter : model.named_parameters()) {
    parameter.value().set_requires_grad(detail::is_saved_whole(config, parameter.key()));
  }
  if (saves_whole(config, kHeadModule) && !saves_whole(config, kEmbeddingModule) &&
      model.named_parameters().find(std::string(kHeadModule) + ".weight") == nullptr) {
    throw InputError("modules_to_save names lm_head alone, which this model ties to its embedding: name embed_tokens");
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::int64_t attached = 0;
  for_each_lora(model, [&](const std::string& name, Lora<nn::Linear>& layer) {
    if (!selects(config, name)) return;
    layer.attach({.rank = rank_for(config, name), .scaling = scaling_for(config, name), .dropout = config.dropout},
                 generator);
    ++attached;
  });
  if (attached == 0) throw InputError("the adapter's target modules select no linear map of the model");
  return attached;
}

/// Whether a parameter of this full name is an adapter's, or one that `config` saves whole.
inline bool is_adapter_parameter(const AdapterConfig& config, const std::string& name) {
  return name.find(".lora_") != std::string::npos || detail::is_saved_whole(config, name);
}

/// The adapters' parameters under their full names, and those of the modules that `config` saves whole.
template <class Model>
io::NamedTensors adapter_parameters(const Model& model, const AdapterConfig& config = {}) {
  io::NamedTensors tensors;
  for (const auto& item : model.named_parameters()) {
    if (is_adapter_parameter(config, item.key())) tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

/// Folds every adapter into its weight, in place; the model must not compute with its adapters afterwards (save it).
/// Returns how many.
template <class Model>
std::int64_t merge_adapters(Model& model) {
  const c10::NoGradGuard no_gradient;
  std::int64_t merged = 0;
  for_each_lora(model, [&](const std::string&, Lora<nn::Linear>& layer) {
    if (!layer.attached()) return;
    layer.weight.copy_(layer.merged_weight());
    layer.detach_adapter();
    ++merged;
  });
  return merged;
}

template <class Ops>
using LoraLlama = nn::Llama<Ops, Lora<nn::Linear>>;

/// A model folder's model with the adapter of a PEFT folder on it; without one when `adapter_folder` is empty.
template <class Ops>
std::shared_ptr<LoraLlama<Ops>> load_with_adapter(const std::filesystem::path& folder,
                                                  const std::filesystem::path& adapter_folder, at::ScalarType dtype) {
  auto model = hf::load_model<LoraLlama<Ops>>(folder, dtype);
  if (adapter_folder.empty()) return model;
  const AdapterConfig config = read_adapter_config(adapter_folder);
  attach_adapters(*model, config);
  load_adapter_tensors(adapter_folder, adapter_parameters(*model, config));
  return model;
}

}  // namespace ilme::lora
