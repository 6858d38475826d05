/// The shape of a Llama model. Plain data without torch; hf/config.hpp reads and writes it as Hugging Face's
/// config.json.
#pragma once

#include <cstdint>
#include <vector>

namespace ilme::nn {

/// How rotary frequencies are stretched for long contexts. `llama3` is the rule of Llama 3.1 and later: wavelengths
/// longer than original_max_position_embeddings / low_freq_factor are divided by `factor`, those shorter than
/// original / high_freq_factor are kept, and those between are interpolated.
struct RopeScaling {
  enum class Type { none, linear, llama3 };
  Type type = Type::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
};

/// The fields of Transformers' LlamaConfig that change what is computed, under the same names.
struct LlamaConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::int64_t bos_token_id = -1;                ///< -1: none
  std::vector<std::int64_t> eos_token_ids = {};  ///< any of them ends a generation
  std::int64_t pad_token_id = -1;                ///< -1: none
};

}  // namespace ilme::nn
