/// Where an operation leaves a parameter's gradient that it made early, in place, or more precisely than autograd could
/// carry it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace ilme::ops {

/// Stands at a parameter, as autograd's post-accumulate hook, and takes its gradients. An operation that finds one
/// hands its gradient over in the backward and returns an undefined tensor to autograd, which would round the gradient
/// to the parameter's dtype and hold it a second time. optim::GradientSink puts one at each of its parameters.
struct GradientReceiver : torch::autograd::PostAccumulateGradHook {
  /// A sum to add to. `empty`: nothing has come yet and its contents are undefined, so that all of it is to be written.
  struct Accumulator {
    at::Tensor sum;
    bool empty;
  };

  /// Adds `gradient`, of the parameter's shape and any floating dtype. The tensor may be kept and changed.
  virtual void take(at::Tensor gradient) = 0;

  /// The sum itself, contiguous float32 (float64 for a float64 parameter) of the parameter's shape, for operations that
  /// add in place. From then on it counts as written.
  virtual Accumulator accumulator() = 0;
};

/// The receiver at `parameter`, or null: its gradient then goes through autograd.
inline GradientReceiver* gradient_receiver(const at::Tensor& parameter) {
  if (!parameter.defined() || torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  return dynamic_cast<GradientReceiver*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace ilme::ops
