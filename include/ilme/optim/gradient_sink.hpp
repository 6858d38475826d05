/// The one place where every parameter's gradient arrives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <ilme/ops/gradient_receiver.hpp>

namespace ilme::optim {

/// Takes gradients as backward makes them and keeps their sum in float32 (float64 for float64 parameters), so that
/// accumulation over micro-batches does not round to bf16. Autograd's own `.grad` is emptied at once: a gradient is
/// never held twice. Operations that make a weight's gradient early hand it over through `receiver()`.
///
/// `redirect` replaces what happens to an arriving gradient: a sharding wrapper reduces it over ranks, an
/// optimizer-in-backward steps and frees it. The sink must outlive every backward over its parameters.
class GradientSink {
 public:
  /// Gets a parameter's index in the constructor's list and the gradient that one backward made for it.
  using Handler = std::function<void(std::size_t index, at::Tensor gradient)>;

  explicit GradientSink(std::vector<at::Tensor> parameters) : state_(std::make_shared<State>()) {
    state_->parameters = std::move(parameters);
    state_->sums.resize(state_->parameters.size());
    for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
      const at::Tensor& parameter = state_->parameters[i];
      state_->index[parameter.unsafeGetTensorImpl()] = i;
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(state_, i));
    }
  }
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;
  ~GradientSink() {
    for (const at::Tensor& parameter : state_->parameters) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    }
  }

  /// For operations: adds a gradient for a parameter of this sink.
  ops::GradientReceiver receiver() {
    return [state = state_](const at::Tensor& parameter, at::Tensor gradient) {
      const auto found = state->index.find(parameter.unsafeGetTensorImpl());
      TORCH_CHECK_VALUE(found != state->index.end(), "ilme::optim::GradientSink: a gradient came for a tensor ",
                        parameter.sizes(), " that is not one of its parameters");
      state->take(found->second, std::move(gradient));
    };
  }

  /// Sends arriving gradients to `handler` instead of the sums; an empty one restores the default.
  void redirect(Handler handler) { state_->handler = std::move(handler); }

  /// The sums, one a parameter; undefined where no gradient has come since the last `clear`.
  std::vector<at::Tensor>& gradients() { return state_->sums; }

  /// Forgets the sums and frees their memory.
  void clear() {
    for (at::Tensor& sum : state_->sums) sum.reset();
  }

 private:
  struct State {
    std::vector<at::Tensor> parameters, sums;
    std::unordered_map<const c10::TensorImpl*, std::size_t> index;
    Handler handler;

    void take(std::size_t i, at::Tensor gradient) {
      if (handler) return handler(i, std::move(gradient));
      const c10::NoGradGuard no_gradient;
      at::Tensor& sum = sums[i];
      if (sum.defined()) {
        sum.add_(gradient);
        return;
      }
      const at::ScalarType precise = gradient.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      sum = gradient.to(precise).contiguous();
    }
  };

  struct Hook : torch::autograd::PostAccumulateGradHook {
    Hook(std::shared_ptr<State> s, std::size_t i) : state(std::move(s)), index(i) {}
    void operator()(const torch::autograd::Variable& parameter) override {
      at::Tensor gradient = std::move(parameter.mutable_grad());
      parameter.mutable_grad() = at::Tensor();
      if (!gradient.defined()) return;  // autograd calls also when an operation has handed it to the receiver
      state->take(index, std::move(gradient));
    }
    std::shared_ptr<State> state;
    std::size_t index;
  };

  std::shared_ptr<State> state_;
};

}  // namespace ilme::optim
