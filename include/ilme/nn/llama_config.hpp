/// The shape of a Llama model and its relatives. Plain data without torch; hf/config.hpp reads and writes it as Hugging
/// Face's config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace ilme::nn {

/// Who reads the folder elsewhere: the same blocks, with other options and other defaults in config.json.
enum class Architecture { llama, mistral, qwen2 };

/// How rotary frequencies are stretched for long contexts (nn/rotary_embedding.hpp computes them). Fields that a type
/// does not name have no effect on it.
/// - linear: every frequency divided by `factor`.
/// - dynamic: the base grows with the length of a sequence that is longer than LlamaConfig::max_position_embeddings, by
///   `factor` (NTK-aware, without training).
/// - llama3: wavelengths longer than original_max_position_embeddings / low_freq_factor are divided by `factor`, those
///   shorter than original / high_freq_factor are kept, those between are interpolated.
/// - yarn (Peng et al. 2023): dimensions that turn more than beta_fast times within the original context are kept,
/// those
///   that turn less than beta_slow times are divided by `factor`, those between are interpolated; cosines and sines are
///   multiplied by an attention factor.
struct RopeScaling {
  enum class Type { none, linear, llama3, dynamic, yarn };
  Type type = Type::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> attention_factor = {};  ///< none: from mscale and mscale_all_dim, or from factor
  double mscale = 0.0;                          ///< 0: none
  double mscale_all_dim = 0.0;                  ///< 0: none
  bool truncate = true;                         ///< bounds of the interpolated dimensions rounded outwards

  bool operator==(const RopeScaling&) const = default;
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

  Architecture architecture = Architecture::llama;
  bool attention_bias = false;         ///< biases on the projections of queries, keys and values
  bool attention_output_bias = false;  ///< a bias on the projection of what attention gives
  bool mlp_bias = false;               ///< biases on the feed-forward's projections
  /// A token sees itself and the sliding_window - 1 tokens before it; 0: all of them.
  std::int64_t sliding_window = 0;
  /// Ids that are never generated (generation_config.json).
  std::vector<std::int64_t> suppress_tokens = {};

  /// vocab_size less the run of ids at its end that are all suppressed: rows that only pad the embedding.
  std::int64_t used_vocabulary() const {
    std::int64_t used = vocab_size;
    while (used > 0 && std::find(suppress_tokens.begin(), suppress_tokens.end(), used - 1) != suppress_tokens.end()) {
      --used;
    }
    return used;
  }

  bool operator==(const LlamaConfig&) const = default;
};

}  // namespace ilme::nn
