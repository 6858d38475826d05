/// The global gradient norm.
#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace ilme::optim {

/// L2 norm over all defined gradients together, as a float32 scalar tensor (no host sync); 0 when there are none.
inline at::Tensor global_norm(const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_gradient;
  std::vector<at::Tensor> defined;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) defined.push_back(gradient);
  }
  if (defined.empty()) return at::zeros({}, at::kFloat);
  std::vector<at::Tensor> norms = at::_foreach_norm(defined, 2);
  return at::stack(norms).to(at::kDouble).norm().to(at::kFloat);
}

}  // namespace ilme::optim
