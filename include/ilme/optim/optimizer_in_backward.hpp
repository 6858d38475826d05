/// Updates every parameter while backward runs, so that its gradient need not wait for the others.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/optim/concepts.hpp>
#include <ilme/optim/gradients.hpp>

namespace ilme::optim {

/// An optimizer that updates one parameter at a time as well: `step_one(index, gradient, learning_rate, divisor)`.
template <class O>
concept SingleParameterOptimizer = Optimizer<O> &&
    requires(O& optimizer, std::size_t index, const at::Tensor& gradient, const std::optional<at::Tensor>& divisor) {
  optimizer.step_one(index, gradient, 1e-3, divisor);
};

/// Between `begin` and `end` the sink's gradients go to the optimizer one by one, as soon as backward has made all of
/// one, and are freed. Memory then holds a gradient or two in place of one a parameter (Lv et al. 2023, "LOMO"). The
/// update is the ordinary one, bit for bit. What needs all gradients at once cannot be had: no clipping to a global
/// norm, no accumulation over backwards. A parameter whose gradient is not finite is left alone; the updates of others
/// that backward came to before cannot be undone.
template <SingleParameterOptimizer Optimizer>
class OptimizerInBackward {
 public:
  /// The sink is that of the optimizer's named_parameters(), in their order.
  OptimizerInBackward(Gradients& sink, Optimizer& optimizer) : sink_(sink), optimizer_(optimizer) {}
  OptimizerInBackward(const OptimizerInBackward&) = delete;
  OptimizerInBackward& operator=(const OptimizerInBackward&) = delete;
  ~OptimizerInBackward() { sink_.redirect({}); }

  /// The gradients of the backward that follows are divided by `divisor` and applied.
  void begin(double learning_rate, const std::optional<at::Tensor>& divisor = std::nullopt) {
    squares_ = 0;
    sink_.redirect([this, learning_rate, divisor](std::size_t index, at::Tensor gradient) {
      const c10::NoGradGuard no_gradient;
      const auto precise = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const double norm = at::linalg_vector_norm(gradient, 2, std::nullopt, false, precise).item<double>();
      squares_ += norm * norm;
      if (std::isfinite(norm)) optimizer_.step_one(index, gradient, learning_rate, divisor);
    });
  }

  /// After the backward: the norm of all its gradients together, undivided. It is not finite when one of them was not.
  double end() {
    sink_.redirect({});
    return std::sqrt(squares_);
  }

 private:
  Gradients& sink_;
  Optimizer& optimizer_;
  double squares_ = 0;
};

}  // namespace ilme::optim
