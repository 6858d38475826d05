/// A tiny Llama with weights by formula, as tests/references/llama_reference.py makes it with Transformers.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "support/catch_torch.hpp"

#include <ilme/data/collate.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/policy.hpp>

namespace ilme::test {

inline nn::LlamaConfig tiny_config(bool tied = true) {
  nn::LlamaConfig config;
  config.vocab_size = 23;
  config.hidden_size = 16;
  config.intermediate_size = 20;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.max_position_embeddings = 64;
  config.rms_norm_eps = 1e-5;
  config.rope_theta = 100.0;
  config.rope_scaling = {nn::RopeScaling::Type::llama3, 4.0, 1.0, 4.0, 16};
  config.tie_word_embeddings = tied;
  config.bos_token_id = 0;
  config.eos_token_ids = {1};
  return config;
}

/// Parameter number p of the sorted names holds at flat index i sin(0.37 i + p) / sqrt(columns); norms 1 + 0.1
/// sin(...).
inline void fill_by_formula(torch::nn::Module& model) {
  const at::NoGradGuard no_gradient;
  std::map<std::string, at::Tensor> sorted;
  for (auto& item : model.named_parameters()) {
    if (item.key().find("lora_") == std::string::npos) sorted.emplace(item.key(), item.value());
  }
  double p = 0;
  for (auto& [name, weight] : sorted) {
    at::Tensor wave = (at::arange(weight.numel(), at::kDouble) * 0.37 + p++).sin().view(weight.sizes());
    weight.copy_(weight.dim() == 1 ? 1 + 0.1 * wave : wave / std::sqrt(static_cast<double>(weight.size(1))));
  }
}

/// One row that holds the documents one after another; labels are the next ids within each.
inline data::Batch batch_of(const std::vector<std::vector<std::int64_t>>& documents) {
  data::PackedBatch packed;
  packed.rows = 1;
  packed.sequence_offsets.push_back(0);
  for (const auto& document : documents) {
    for (std::size_t i = 0; i < document.size(); ++i) {
      packed.input_ids.push_back(document[i]);
      packed.position_ids.push_back(static_cast<std::int64_t>(i));
      packed.labels.push_back(i + 1 < document.size() ? document[i + 1] : data::kIgnoredLabel);
      if (i + 1 < document.size()) ++packed.token_count;
    }
    packed.sequence_offsets.push_back(static_cast<std::int64_t>(packed.input_ids.size()));
  }
  packed.sequence_length = static_cast<std::int64_t>(packed.input_ids.size());
  return data::collate(packed);
}

}  // namespace ilme::test
