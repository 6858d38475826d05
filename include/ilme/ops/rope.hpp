/// Rotary position embedding (Su et al. 2021, "RoFormer") in the half-split layout of Hugging Face's weights.
#pragma once

#include <utility>

#include <ATen/ATen.h>

namespace ilme::ops {

namespace detail {

/// [a, b] -> [-b, a] over the halves of the last dimension.
inline at::Tensor rotate_half(const at::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

}  // namespace detail

/// Rotates x [batch, sequence, heads, head_dim] by the angles whose cosines and sines are given as [batch, sequence,
/// head_dim] (float32; each half repeats the other): x * cos + rotate_half(x) * sin, as Transformers' LlamaAttention
/// computes it, with the tables rounded to x's dtype. Differentiable in x.
inline at::Tensor rope_reference(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor cosine = cos.unsqueeze(2).to(x.scalar_type());
  const at::Tensor sine = sin.unsqueeze(2).to(x.scalar_type());
  return x * cosine + detail::rotate_half(x) * sine;
}

}  // namespace ilme::ops
