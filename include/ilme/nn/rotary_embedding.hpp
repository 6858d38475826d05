/// Tables of rotary angles, with the frequency rules of Llama 3.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/nn/llama_config.hpp>

namespace ilme::nn {

/// Inverse frequencies theta^(-2i/head_dim), i < head_dim / 2, stretched as `scaling` says; in float32 steps as
/// Transformers' rope utilities compute them, because models were trained with those.
inline std::vector<float> rope_inverse_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  constexpr double kTwoPi = 6.283185307179586;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(theta), exponent);
    if (scaling.type == RopeScaling::Type::linear) frequency /= static_cast<float>(scaling.factor);
    if (scaling.type == RopeScaling::Type::llama3) {
      const auto original = static_cast<double>(scaling.original_max_position_embeddings);
      const auto wavelength = static_cast<float>(kTwoPi / frequency);
      const auto stretched = static_cast<float>(frequency / scaling.factor);
      if (wavelength > original / scaling.low_freq_factor) {
        frequency = stretched;
      } else if (wavelength >= original / scaling.high_freq_factor) {
        const auto smooth = static_cast<float>((original / wavelength - scaling.low_freq_factor) /
                                               (scaling.high_freq_factor - scaling.low_freq_factor));
        frequency = (1.0F - smooth) * stretched + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

/// Cosines and sines by position, float32 [positions, head_dim] with the second half repeating the first. Angles are
/// computed in float64 from float32 frequencies. The table grows to the largest position asked for.
class RotaryEmbedding {
 public:
  explicit RotaryEmbedding(const LlamaConfig& config)
      : frequencies_(rope_inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)) {}

  /// The rows of position_ids (int64, any shape): two float32 tensors [..., head_dim].
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& position_ids) {
    const at::Tensor flat = position_ids.flatten();
    if (flat.numel() > 0) grow(flat.max().item<std::int64_t>() + 1, position_ids.device());
    std::vector<std::int64_t> shape = position_ids.sizes().vec();
    shape.push_back(static_cast<std::int64_t>(frequencies_.size()) * 2);
    return {cos_.index_select(0, flat).view(shape), sin_.index_select(0, flat).view(shape)};
  }

 private:
  void grow(std::int64_t positions, const at::Device& device) {
    if (cos_.defined() && cos_.size(0) >= positions && cos_.device() == device) return;
    const c10::NoGradGuard no_gradient;
    positions = std::max<std::int64_t>({positions, 256, cos_.defined() ? cos_.size(0) * 2 : 0});
    const at::Tensor frequencies = at::tensor(frequencies_, at::kFloat).to(at::kDouble);
    const at::Tensor angles = at::outer(at::arange(positions, at::kDouble), frequencies);
    const at::Tensor both = at::cat({angles, angles}, 1);
    cos_ = both.cos().to(at::kFloat).to(device);
    sin_ = both.sin().to(at::kFloat).to(device);
  }

  std::vector<float> frequencies_;
  at::Tensor cos_, sin_;
};

}  // namespace ilme::nn
