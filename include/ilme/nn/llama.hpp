/// The Llama language model as a template over its operations and its linear type.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ilme/core/error.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/nn/block.hpp>
#include <ilme/nn/linear.hpp>
#include <ilme/nn/llama_config.hpp>
#include <ilme/nn/rotary_embedding.hpp>

namespace ilme::nn {

/// A part of a model as it is.
template <class Module>
using Plain = Module;

/// A decoder of Llama's architecture (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024). Parameter names are those
/// of Hugging Face's LlamaForCausalLM; with tied embeddings there is no lm_head parameter. `LinearType` is Linear
/// (PlainLinear with ops::Reference), or lora::Lora<Linear> for a model that can carry adapters. Any dtype that ATen
/// multiplies; parameters are uninitialised until `initialize` or hf::load_parameters. `Part` wraps the blocks:
/// dist::FullySharded for a model that is sharded over ranks.
template <ops::ModelOperations Ops, class LinearType = LinearOf<Ops>, template <class> class Part = Plain>
class Llama : public torch::nn::Module {
 public:
  using BlockType = Part<Block<Ops, LinearType>>;

  explicit Llama(const LlamaConfig& config, const at::TensorOptions& options = at::kFloat)
      : embed_tokens(std::make_shared<Embedding<Ops>>(config.vocab_size, config.hidden_size, options)),
        norm(std::make_shared<RmsNorm<Ops>>(config.hidden_size, config.rms_norm_eps, options)),
        config_(config),
        rotary_(config) {
    auto layer_list = std::make_shared<Group>();
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers.push_back(std::make_shared<BlockType>(config, static_cast<std::size_t>(i), options));
      layer_list->add(std::to_string(i), layers.back());
    }
    auto decoder = std::make_shared<Group>();
    decoder->add("embed_tokens", embed_tokens);
    decoder->add("layers", std::move(layer_list));
    decoder->add("norm", norm);
    register_module("model", std::move(decoder));
    if (!config.tie_word_embeddings) {
      lm_head = register_module("lm_head", std::make_shared<Linear>(config.hidden_size, config.vocab_size, options));
    }
  }

  /// Final hidden states [batch, sequence, hidden] of a packed batch: after the last norm, before the head.
  /// Throws InputError for a document longer than the sliding window, which is not computed.
  at::Tensor hidden(const data::Batch& batch) {
    for (std::size_t i = 1; i < batch.sequence_offsets.size(); ++i) {
      check_window(batch.sequence_offsets[i] - batch.sequence_offsets[i - 1]);
    }
    const auto [cos, sin] = rotary_.forward(batch.position_ids, &batch.sequence_offsets);
    return run_blocks(batch.input_ids,
                      {cos, sin, std::make_shared<const std::vector<std::int64_t>>(batch.sequence_offsets), {}});
  }

  /// Hidden states [sequences, new, hidden] of new tokens input_ids int64 [sequences, new] that continue what the
  /// sequences' caches hold, one cache a row and of any lengths; appends them. The caches must differ.
  at::Tensor hidden(const at::Tensor& input_ids, std::span<KvCache* const> caches) {
    TORCH_CHECK_VALUE(input_ids.size(0) == static_cast<std::int64_t>(caches.size()) && !caches.empty(),
                      "ilme::nn::Llama: ", input_ids.size(0), " rows of ids, ", caches.size(), " caches");
    const std::int64_t fresh = input_ids.size(1);
    std::vector<std::int64_t> first;
    for (const KvCache* cache : caches) {
      first.push_back(cache->length());
      check_window(cache->length() + fresh);
    }
    const at::Tensor positions =
        at::tensor(first, at::kLong).to(input_ids.device()).unsqueeze(1) + at::arange(fresh, input_ids.options());
    const auto [cos, sin] = rotary_.forward(positions);
    const at::Tensor states = run_blocks(input_ids, {cos, sin, nullptr, caches});
    for (KvCache* cache : caches) cache->advance(fresh);
    return states;
  }

  /// As above for one sequence, input_ids [1, new].
  at::Tensor hidden(const at::Tensor& input_ids, KvCache& cache) {
    KvCache* const caches[] = {&cache};
    return hidden(input_ids, caches);
  }

  /// The head's weight [vocab_size, hidden_size]: logits = hidden @ weight^T. The embedding when they are tied.
  const at::Tensor& lm_head_weight() const { return lm_head ? lm_head->weight : embed_tokens->weight; }

  /// What every block keeps for its backward from now on (nn/recompute.hpp).
  void set_activation_checkpointing(ActivationCheckpointing kind) {
    for (auto& layer : layers) layer->activation_checkpointing = kind;
  }

  /// Draws fresh weights as Transformers does: normal(0, initializer_range) for matrices, 0 for biases, 1 for norms.
  void initialize(std::uint64_t seed) {
    const c10::NoGradGuard no_gradient;
    at::Generator generator = at::detail::createCPUGenerator(seed);
    for (auto& parameter : named_parameters()) {
      at::Tensor& weight = parameter.value();
      if (weight.dim() == 1) {
        weight.fill_(parameter.key().ends_with(".bias") ? 0.0 : 1.0);
      } else {
        weight.copy_(at::normal(0.0, config_.initializer_range, weight.sizes(), generator, at::kFloat));
      }
    }
  }

  const LlamaConfig& config() const noexcept { return config_; }

  std::shared_ptr<Embedding<Ops>> embed_tokens;
  std::vector<std::shared_ptr<BlockType>> layers;
  std::shared_ptr<RmsNorm<Ops>> norm;
  std::shared_ptr<Linear> lm_head;  ///< null when tied

 private:
  /// A level of the parameter names ("model", "layers") that computes nothing itself.
  struct Group : torch::nn::Module {
    void add(const std::string& name, std::shared_ptr<torch::nn::Module> child) {
      register_module(name, std::move(child));
    }
  };

  void check_window(std::int64_t tokens) const {
    if (config_.sliding_window == 0 || tokens <= config_.sliding_window) return;
    throw InputError("a sequence of ", tokens, " tokens is longer than the model's sliding_window of ",
                     config_.sliding_window, ", and attention within a window is not supported; use shorter sequences");
  }

  at::Tensor run_blocks(const at::Tensor& input_ids, const AttentionContext& context) {
    at::Tensor states = embed_tokens->forward(input_ids);
    for (auto& layer : layers) states = layer->forward(states, context);
    return norm->forward(states);
  }

  LlamaConfig config_;
  RotaryEmbedding rotary_;
};

}  // namespace ilme::nn
