/// The one place where every parameter's gradient arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/gradients.hpp>

namespace ilme::optim {

/// Takes gradients as backward makes them and keeps their sum in float32 (float64 for float64 parameters), so that
/// accumulation over micro-batches does not round to bf16. Autograd's own `.grad` is emptied at once: a gradient is
/// never held twice. Operations that make a weight's gradient early find the sink at the weight
/// (ops/gradient_receiver.hpp).
///
/// `redirect` replaces what happens to a gradient when all of it has come: a sharding wrapper reduces it over ranks, an
/// optimizer-in-backward steps and frees it. The sink must outlive every backward over its parameters.
class GradientSink : public Gradients {
 public:
  explicit GradientSink(std::vector<at::Tensor> parameters)
      : parameters_(std::move(parameters)), state_(std::make_shared<State>()) {
    state_->sums.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(state_, i, parameters_[i]));
    }
  }
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;
  ~GradientSink() override {
    for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }

  /// Sends a parameter's gradient to `handler` when a backward has made all of it, instead of keeping the sum; an empty
  /// handler restores the default. A parameter that is used inside two checkpointed segments completes in each.
  void redirect(Handler handler) override { state_->handler = std::move(handler); }

  void set_is_last_backward(bool) override {}

  /// The sums, one a parameter; undefined where no gradient has come since the last `clear`.
  std::vector<at::Tensor>& gradients() override { return state_->sums; }

  at::Tensor norm(double p = 2.0) override { return global_norm(state_->sums, p); }

  /// Forgets the sums and frees their memory.
  void clear() override {
    for (at::Tensor& sum : state_->sums) sum.reset();
  }

 private:
  struct State {
    std::vector<at::Tensor> sums;
    Handler handler;
  };

  struct Hook : ops::GradientReceiver {
    Hook(std::shared_ptr<State> s, std::size_t i, const at::Tensor& parameter)
        : state(std::move(s)),
          index(i),
          sizes(parameter.sizes().vec()),
          options(parameter.options()
                      .dtype(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
                      .requires_grad(false)) {}

    /// Autograd's call, once in a backward, after the last of the parameter's uses; also when they have all handed
    /// their gradients over.
    void operator()(const torch::autograd::Variable& parameter) override {
      at::Tensor gradient = std::move(parameter.mutable_grad());
      parameter.mutable_grad() = at::Tensor();
      if (gradient.defined()) take(std::move(gradient));
      at::Tensor& sum = state->sums[index];
      if (state->handler && sum.defined()) state->handler(index, std::exchange(sum, {}));
    }

    void take(at::Tensor gradient) override {
      TORCH_CHECK_VALUE(gradient.sizes() == sizes, "ilme::optim::GradientSink: a gradient ", gradient.sizes(),
                        " came for a parameter ", at::IntArrayRef(sizes));
      const c10::NoGradGuard no_gradient;
      at::Tensor& sum = state->sums[index];
      if (sum.defined()) {
        sum.add_(gradient);
      } else {
        sum = gradient.to(options.dtype()).contiguous();
      }
    }

    Accumulator accumulator() override {
      at::Tensor& sum = state->sums[index];
      if (sum.defined()) return {sum, false};
      sum = at::empty(sizes, options);
      return {sum, true};
    }

    std::shared_ptr<State> state;
    std::size_t index;
    std::vector<std::int64_t> sizes;
    at::TensorOptions options;
  };

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<State> state_;
};

}  // namespace ilme::optim
