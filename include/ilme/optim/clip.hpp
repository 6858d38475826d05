/// The global gradient norm.
#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace ilme::optim {

/// p-norm over all defined gradients together, as a float32 scalar tensor on their device (no host sync); 0 when there
/// are none. `p` infinity: the largest magnitude.
inline at::Tensor global_norm(const std::vector<at::Tensor>& gradients, double p = 2.0) {
  const c10::NoGradGuard no_gradient;
  std::vector<at::Tensor> defined;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.numel() > 0) defined.push_back(gradient);
  }
  if (defined.empty()) return at::zeros({}, at::kFloat);
  std::vector<at::Tensor> norms = at::_foreach_norm(defined, p);
  return at::stack(norms).to(at::kDouble).norm(p).to(at::kFloat);
}

}  // namespace ilme::optim
