/// Where a step's gradients are found.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ilme::optim {

/// What takes the gradients of a model's parameters as backward makes them: GradientSink on one rank, dist::Sharding on
/// many.
class Gradients {
 public:
  /// Gets a parameter's index and the sum of what one backward made for it.
  using Handler = std::function<void(std::size_t index, at::Tensor gradient)>;

  virtual ~Gradients() = default;
  /// Sends each gradient to `handler` as soon as all of it has come in a backward, instead of keeping the sum; an empty
  /// handler restores the default.
  virtual void redirect(Handler handler) = 0;
  /// Says whether the backward that follows is the step's last: sums over ranks may be made from then on.
  virtual void set_is_last_backward(bool last) = 0;
  /// The sums, one a parameter in the optimizer's order; undefined where no gradient has come since the last `clear`.
  virtual std::vector<at::Tensor>& gradients() = 0;
  /// The p-norm of all sums together, over all ranks: a float32 scalar tensor; no host sync.
  virtual at::Tensor norm(double p = 2.0) = 0;
  /// Forgets the sums and frees their memory.
  virtual void clear() = 0;
};

}  // namespace ilme::optim
