/// Tables of rotary angles, with the frequency rules of long-context models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/nn/llama_config.hpp>

namespace ilme::nn {

namespace detail {

inline constexpr double kTwoPi = 6.283185307179586;

/// Llama 3's rule (Grattafiori et al. 2024) on plain frequencies.
inline at::Tensor llama3_frequencies(const at::Tensor& plain, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const at::Tensor wavelengths = kTwoPi / plain;
  const at::Tensor stretched = plain / scaling.factor;
  const at::Tensor smooth =
      (original / wavelengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - smooth) * plain / scaling.factor + smooth * plain;
  return at::where(wavelengths > original / scaling.low_freq_factor, stretched,
                   at::where(wavelengths < original / scaling.high_freq_factor, plain, between));
}

/// YaRN's rule (Peng et al. 2023): a linear ramp over the dimensions, between those that turn beta_fast and beta_slow
/// times within the original context. `powers` are theta^(2i/head_dim).
inline at::Tensor yarn_frequencies(const at::Tensor& powers, const LlamaConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto turning = [&](double times) {
    const auto original = static_cast<double>(scaling.original_max_position_embeddings);
    return static_cast<double>(config.head_dim) * std::log(original / (times * kTwoPi)) /
           (2 * std::log(config.rope_theta));
  };
  double low = turning(scaling.beta_fast), high = turning(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.head_dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor kept = 1 - ((at::arange(powers.size(0), at::kFloat) - low) / (high - low)).clamp(0, 1);
  return (scaling.factor * powers).reciprocal() * (1 - kept) + powers.reciprocal() * kept;
}

}  // namespace detail

/// Inverse frequencies theta^(-2i/head_dim), i < head_dim / 2, float32 on the CPU, stretched as config.rope_scaling
/// says; in the float32 steps of Transformers' modeling_rope_utils.py, because models were trained with those. `length`
/// is that of the sequence in tokens; the type `dynamic` alone depends on it.
inline at::Tensor rope_inverse_frequencies(const LlamaConfig& config, std::int64_t length = 0) {
  using Type = RopeScaling::Type;
  const c10::NoGradGuard no_gradient;
  const RopeScaling& scaling = config.rope_scaling;
  const auto dim = static_cast<double>(config.head_dim);
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::kFloat) / dim;
  if (scaling.type == Type::dynamic && length > config.max_position_embeddings) {
    const at::Tensor stretch =
        at::full({}, length, at::kFloat) * scaling.factor / static_cast<double>(config.max_position_embeddings) -
        (scaling.factor - 1);
    return at::pow(stretch.pow(dim / (dim - 2)) * config.rope_theta, exponents).reciprocal();
  }
  const at::Tensor powers = at::pow(config.rope_theta, exponents);
  if (scaling.type == Type::yarn) return detail::yarn_frequencies(powers, config);
  const at::Tensor plain = powers.reciprocal();
  if (scaling.type == Type::linear) return plain / scaling.factor;
  if (scaling.type == Type::llama3) return detail::llama3_frequencies(plain, scaling);
  return plain;
}

/// What cosines and sines are multiplied by: 1 but for YaRN, 0.1 ln(factor) + 1 there unless the configuration says
/// otherwise.
inline double rope_attention_factor(const RopeScaling& scaling) {
  if (scaling.type != RopeScaling::Type::yarn) return 1.0;
  if (scaling.attention_factor) return *scaling.attention_factor;
  const auto magnitude = [&](double scale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * scale * std::log(scaling.factor) + 1.0;
  };
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    return magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim);
  }
  return magnitude(1.0);
}

/// Cosines and sines by position, float32 [positions, head_dim] with the second half repeating the first. Angles are
/// float32 products, as in Transformers. The table grows to the largest position asked for.
///
/// The type `dynamic` gives a sequence longer than max_position_embeddings frequencies of its own length: that of its
/// document in a packed batch, of its row so far in a generation (keys that are cached keep the angles they got). One
/// sequence alone has Transformers' angles; what was computed before, or lies beside it, does not change them, as it
/// does there.
class RotaryEmbedding {
 public:
  explicit RotaryEmbedding(const LlamaConfig& config)
      : config_(config),
        frequencies_(rope_inverse_frequencies(config)),
        factor_(rope_attention_factor(config.rope_scaling)) {}

  /// For position_ids int64 [batch, sequence]: two float32 tensors [batch, sequence, head_dim]. `sequence_offsets`
  /// delimit documents over the flattened positions; without them each row is one sequence.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& position_ids,
                                            const std::vector<std::int64_t>* sequence_offsets = nullptr) {
    const c10::NoGradGuard no_gradient;
    const at::Tensor flat = position_ids.flatten();
    const std::int64_t length = flat.numel() > 0 ? flat.max().item<std::int64_t>() + 1 : 0;
    std::vector<std::int64_t> shape = position_ids.sizes().vec();
    shape.push_back(config_.head_dim);
    if (config_.rope_scaling.type == RopeScaling::Type::dynamic && length > config_.max_position_embeddings) {
      const auto [cos, sin] =
          table(flat.to(at::kFloat).unsqueeze(1) * frequencies_by_token(position_ids, sequence_offsets));
      return {cos.view(shape), sin.view(shape)};
    }
    grow(length, position_ids.device());
    return {cos_.index_select(0, flat).view(shape), sin_.index_select(0, flat).view(shape)};
  }

 private:
  std::pair<at::Tensor, at::Tensor> table(const at::Tensor& angles) const {
    const at::Tensor both = at::cat({angles, angles}, 1);
    return {both.cos() * factor_, both.sin() * factor_};
  }

  void grow(std::int64_t positions, const at::Device& device) {
    if (cos_.defined() && cos_.size(0) >= positions && cos_.device() == device) return;
    positions = std::max<std::int64_t>({positions, 256, cos_.defined() ? cos_.size(0) * 2 : 0});
    std::tie(cos_, sin_) = table(at::outer(at::arange(positions, at::kFloat), frequencies_));
    cos_ = cos_.to(device);
    sin_ = sin_.to(device);
  }

  /// [tokens, head_dim / 2]: the frequencies of the length of each token's own sequence.
  at::Tensor frequencies_by_token(const at::Tensor& position_ids,
                                  const std::vector<std::int64_t>* sequence_offsets) const {
    const at::Tensor flat = position_ids.flatten().cpu();
    std::vector<std::int64_t> rows;
    if (sequence_offsets == nullptr) {
      for (std::int64_t end = 0; end <= flat.numel(); end += position_ids.size(-1)) rows.push_back(end);
      sequence_offsets = &rows;
    }
    std::vector<at::Tensor> parts;
    for (std::size_t i = 1; i < sequence_offsets->size(); ++i) {
      const std::int64_t begin = (*sequence_offsets)[i - 1], tokens = (*sequence_offsets)[i] - begin;
      const std::int64_t length = flat.narrow(0, begin, tokens).max().item<std::int64_t>() + 1;
      parts.push_back(rope_inverse_frequencies(config_, length).expand({tokens, config_.head_dim / 2}));
    }
    return at::cat(parts).to(position_ids.device());
  }

  LlamaConfig config_;
  at::Tensor frequencies_;
  double factor_;
  at::Tensor cos_, sin_;
};

}  // namespace ilme::nn
