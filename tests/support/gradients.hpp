/// Values and gradients of an operation against its twin.
#pragma once

#include "support/catch_torch.hpp"

namespace ilme::test {

/// Largest absolute difference, in float64.
inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 && b.numel() == 0) return 0.0;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

/// ||a - b|| / ||b||, in float64.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor precise = b.to(at::kDouble);
  return ((a.to(at::kDouble) - precise).norm() / precise.norm().clamp_min(1e-300)).item<double>();
}

inline at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype = at::kDouble, std::uint64_t seed = 1) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(dtype);
}

inline at::Tensor leaf(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.to(dtype).clone().set_requires_grad(true);
}

}  // namespace ilme::test
