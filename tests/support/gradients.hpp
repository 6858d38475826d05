/// Values and gradients of an operation against its twin.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

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

/// The gradients of loss(inputs), a scalar, against central differences of `step` along a random direction of each
/// input: the largest error as a share of the gradient's norm.
template <class Loss>
double difference_quotient_error(const Loss& loss, const std::vector<at::Tensor>& inputs, double step) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf(input, input.scalar_type()));
  loss(leaves).backward();
  double worst = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor direction = random(inputs[i].sizes(), inputs[i].scalar_type(), 100 + i);
    const auto moved = [&](double by) {
      const at::NoGradGuard no_gradient;
      std::vector<at::Tensor> at_place = inputs;
      at_place[i] = inputs[i] + by * direction;
      return loss(at_place).template item<double>();
    };
    const at::Tensor gradient = leaves[i].grad().to(at::kDouble);
    const double expected = (gradient * direction.to(at::kDouble)).sum().item<double>();
    const double quotient = (moved(step) - moved(-step)) / (2 * step);
    worst = std::max(worst, std::abs(quotient - expected) / gradient.norm().item<double>());
  }
  return worst;
}

}  // namespace ilme::test
