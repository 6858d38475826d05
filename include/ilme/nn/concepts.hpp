/// What a trainer, an evaluation or a generation needs of a model.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include <ilme/data/collate.hpp>
#include <ilme/nn/kv_cache.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::nn {

/// Final hidden states [batch, sequence, hidden] for a packed batch, and the head that turns them into logits. The loss
/// sees these two and not the logits, so that a fused loss needs no change of the model.
template <class Model>
concept CausalModel = requires(Model& model, const data::Batch& batch) {
  { model.hidden(batch) } -> std::convertible_to<at::Tensor>;
  { model.lm_head_weight() } -> std::convertible_to<at::Tensor>;
};

/// A model that may be sharded over ranks (dist::FullySharded); `sharding()` is null when it is not.
template <class Model>
concept ShardableModel = requires(Model& model) {
  { model.sharding()->mesh().all.size() } -> std::convertible_to<int>;
};

/// The ranks (dist::Group) that share a model: this process alone when it is not sharded.
template <ShardableModel Model>
const auto& ranks_of(Model& model) {
  using Group = std::remove_cvref_t<decltype(model.sharding()->mesh().all)>;
  static const Group alone;
  return model.sharding() == nullptr ? alone : model.sharding()->mesh().all;
}

/// Rows of the head that stand for tokens: those past them are padding, which a loss leaves out. 0, all of them, for a
/// model that has no configuration to say.
template <CausalModel Model>
std::int64_t used_vocabulary(const Model& model) {
  if constexpr (requires { model.config().used_vocabulary(); }) {
    return model.config().used_vocabulary();
  } else {
    return 0;
  }
}

/// A causal model that continues what several caches hold, one a row of ids.
template <class Model>
concept CachedModel = CausalModel<Model> &&
    requires(Model& model, const at::Tensor& input_ids, std::span<KvCache* const> caches) {
  { model.hidden(input_ids, caches) } -> std::convertible_to<at::Tensor>;
  { model.config() } -> std::convertible_to<const LlamaConfig&>;
};

}  // namespace ilme::nn
