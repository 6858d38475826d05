/// The parts of a Llama model: token embedding, RMSNorm, grouped-query attention, SwiGLU feed-forward, and the block of
/// them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <ilme/nn/kv_cache.hpp>
#include <ilme/nn/linear.hpp>
#include <ilme/nn/llama_config.hpp>
#include <ilme/nn/recompute.hpp>
#include <ilme/ops/policy.hpp>
#include <ilme/ops/value_not_needed.hpp>

namespace ilme::nn {

/// Rows of weight [vocab_size, hidden_size] for ids int64 of any shape: [..., hidden_size].
template <ops::ModelOperations Ops>
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t vocab_size, std::int64_t hidden_size, const at::TensorOptions& options)
      : weight(register_parameter("weight", at::empty({vocab_size, hidden_size}, options))) {}

  at::Tensor forward(const at::Tensor& ids) { return Ops::embedding(weight, ids); }

  at::Tensor weight;
};

/// Root-mean-square normalisation with a learned scale (Zhang & Sennrich 2019).
template <ops::ModelOperations Ops>
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t size, double eps, const at::TensorOptions& options)
      : weight(register_parameter("weight", at::empty({size}, options))), eps_(eps) {}

  at::Tensor forward(const at::Tensor& x) { return Ops::rms_norm(x, weight, eps_); }

  /// {x + branch, the norm of that}.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& branch) {
    return Ops::add_rms_norm(x, branch, weight, eps_);
  }

  at::Tensor weight;

 private:
  double eps_;
};

/// What a block needs beside the hidden states: rotary tables [batch, sequence, head_dim], and either the documents'
/// offsets over the flattened tokens (training; shared, since a checkpointed block needs them in the backward) or a
/// cache a row (generation).
struct AttentionContext {
  at::Tensor cos, sin;
  std::shared_ptr<const std::vector<std::int64_t>> sequence_offsets = nullptr;
  std::span<KvCache* const> caches = {};
};

/// Causal self-attention with grouped keys and values and rotary positions. Hidden states [batch, sequence, hidden].
template <ops::ModelOperations Ops, class LinearType>
class Attention : public torch::nn::Module {
 public:
  Attention(const LlamaConfig& config, std::size_t layer, const at::TensorOptions& options)
      : q_proj(linear("q_proj", config.hidden_size, config.num_attention_heads * config.head_dim, options,
                      config.attention_bias)),
        k_proj(linear("k_proj", config.hidden_size, config.num_key_value_heads * config.head_dim, options,
                      config.attention_bias)),
        v_proj(linear("v_proj", config.hidden_size, config.num_key_value_heads * config.head_dim, options,
                      config.attention_bias)),
        o_proj(linear("o_proj", config.num_attention_heads * config.head_dim, config.hidden_size, options,
                      config.attention_output_bias)),
        heads_(config.num_attention_heads),
        kv_heads_(config.num_key_value_heads),
        head_dim_(config.head_dim),
        layer_(layer) {}

  at::Tensor forward(const at::Tensor& x, const AttentionContext& context) {
    const std::vector<at::Tensor> qkv = project(x);
    const auto [q, k] = Ops::rope(qkv[0], qkv[1], context.cos, context.sin);
    return attend(q, k, qkv[2], context);
  }

  /// Queries, keys and values [batch, sequence, heads * head_dim], before any rotation.
  std::vector<at::Tensor> project(const at::Tensor& x) {
    return {q_proj->forward(x), k_proj->forward(x), v_proj->forward(x)};
  }

  /// What comes after the rotation. `again`: only gradients are wanted (ops::ValueNotNeeded).
  at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    const AttentionContext& context, bool again = false) {
    const std::int64_t batch = queries.size(0), sequence = queries.size(1);
    const at::Tensor q = queries.view({batch, sequence, heads_, head_dim_});
    const at::Tensor k = keys.view({batch, sequence, kv_heads_, head_dim_});
    const at::Tensor v = values.view({batch, sequence, kv_heads_, head_dim_});
    const at::Tensor mixed = context.caches.empty() ? Ops::attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1),
                                                                     *context.sequence_offsets)
                                                    : Ops::cached_attention(q, k, v, layer_caches(context.caches));
    const ops::ValueNotNeeded hint(again);
    return o_proj->forward(mixed.view({batch, sequence, heads_ * head_dim_}));
  }

  std::shared_ptr<LinearType> q_proj, k_proj, v_proj, o_proj;

 private:
  std::shared_ptr<LinearType> linear(const std::string& name, std::int64_t in, std::int64_t out,
                                     const at::TensorOptions& options, bool bias) {
    return register_module(name, std::make_shared<LinearType>(in, out, options, bias));
  }

  std::vector<ops::LayerCache*> layer_caches(std::span<KvCache* const> caches) const {
    std::vector<ops::LayerCache*> layers;
    for (KvCache* cache : caches) layers.push_back(&cache->layer(layer_));
    return layers;
  }

  std::int64_t heads_, kv_heads_, head_dim_;
  std::size_t layer_;
};

/// down_proj(silu(gate_proj(x)) * up_proj(x)).
template <ops::ModelOperations Ops, class LinearType>
class Mlp : public torch::nn::Module {
 public:
  Mlp(const LlamaConfig& config, const at::TensorOptions& options)
      : gate_proj(register_module(
            "gate_proj",
            std::make_shared<LinearType>(config.hidden_size, config.intermediate_size, options, config.mlp_bias))),
        up_proj(register_module("up_proj", std::make_shared<LinearType>(config.hidden_size, config.intermediate_size,
                                                                        options, config.mlp_bias))),
        down_proj(register_module(
            "down_proj",
            std::make_shared<LinearType>(config.intermediate_size, config.hidden_size, options, config.mlp_bias))) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::vector<at::Tensor> gate_up = expand(x);
    return contract(gate_up[0], gate_up[1]);
  }

  /// Gate and up projection.
  std::vector<at::Tensor> expand(const at::Tensor& x) { return {gate_proj->forward(x), up_proj->forward(x)}; }

  /// The rest. `again`: only gradients are wanted (ops::ValueNotNeeded).
  at::Tensor contract(const at::Tensor& gate, const at::Tensor& up, bool again = false) {
    const ops::ValueNotNeeded hint(again);
    return down_proj->forward(Ops::swiglu(gate, up));
  }

  std::shared_ptr<LinearType> gate_proj, up_proj, down_proj;
};

/// One pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
template <ops::ModelOperations Ops, class LinearType>
class Block : public torch::nn::Module {
 public:
  Block(const LlamaConfig& config, std::size_t layer, const at::TensorOptions& options)
      : self_attn(register_module("self_attn", std::make_shared<Attention<Ops, LinearType>>(config, layer, options))),
        mlp(register_module("mlp", std::make_shared<Mlp<Ops, LinearType>>(config, options))),
        input_layernorm(register_module(
            "input_layernorm", std::make_shared<RmsNorm<Ops>>(config.hidden_size, config.rms_norm_eps, options))),
        post_attention_layernorm(
            register_module("post_attention_layernorm",
                            std::make_shared<RmsNorm<Ops>>(config.hidden_size, config.rms_norm_eps, options))) {}

  at::Tensor forward(const at::Tensor& x, const AttentionContext& context) {
    if (context.caches.empty() && activation_checkpointing == ActivationCheckpointing::block) {
      return recompute(
          [this, context](const std::vector<at::Tensor>& inputs, bool again) {
            return std::vector<at::Tensor>{whole(inputs[0], context, again)};
          },
          {x})[0];
    }
    if (context.caches.empty() && activation_checkpointing == ActivationCheckpointing::selective) {
      return selective(x, context);
    }
    return whole(x, context);
  }

  /// What is kept for the backward; no matter without gradients.
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;

  std::shared_ptr<Attention<Ops, LinearType>> self_attn;
  std::shared_ptr<Mlp<Ops, LinearType>> mlp;
  std::shared_ptr<RmsNorm<Ops>> input_layernorm, post_attention_layernorm;

 private:
  at::Tensor whole(const at::Tensor& x, const AttentionContext& context, bool again = false) {
    const auto [attended, normed] =
        post_attention_layernorm->forward(x, self_attn->forward(input_layernorm->forward(x), context));
    const std::vector<at::Tensor> gate_up = mlp->expand(normed);
    return attended + mlp->contract(gate_up[0], gate_up[1], again);
  }

  /// Each segment ends with its products, which do not run again; what comes before them in it does.
  at::Tensor selective(const at::Tensor& x, const AttentionContext& context) {
    using Tensors = std::vector<at::Tensor>;
    const Tensors qkv = recompute(
        [this](const Tensors& in, bool again) {
          const at::Tensor normed = input_layernorm->forward(in[0]);
          const ops::ValueNotNeeded hint(again);
          return self_attn->project(normed);
        },
        {x});
    const auto [q, k] = Ops::rope(qkv[0], qkv[1], context.cos, context.sin);
    const at::Tensor attended = x + recompute(
                                        [this, context](const Tensors& in, bool again) {
                                          return Tensors{self_attn->attend(in[0], in[1], in[2], context, again)};
                                        },
                                        {q, k, qkv[2]})[0];
    const Tensors gate_up = recompute(
        [this](const Tensors& in, bool again) {
          const at::Tensor normed = post_attention_layernorm->forward(in[0]);
          const ops::ValueNotNeeded hint(again);
          return mlp->expand(normed);
        },
        {attended});
    return attended +
           recompute([this](const Tensors& in, bool again) { return Tensors{mlp->contract(in[0], in[1], again)}; },
                     gate_up)[0];
  }
};

}  // namespace ilme::nn
