/// Low-rank adaptation (Hu et al. 2021) as a wrapper type around a linear map.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ilme/nn/linear.hpp>

namespace ilme::lora {

struct AdapterShape {
  std::int64_t rank = 0;
  double scaling = 1.0;  ///< alpha / rank, or alpha / sqrt(rank) for rank-stabilised LoRA
  double dropout = 0.0;  ///< on the adapter's input while training, in [0, 1)
};

/// `Base` with room for an adapter: y = base(x) + scaling * (dropout(x) @ A^T) @ B^T, A [rank, in], B [out, rank].
/// Without an adapter it computes what Base computes, at no cost. The adapter's parameters are named lora_A.weight and
/// lora_B.weight, as in PEFT. They are float32 (float64 on a float64 base) whatever the base is, so that training and
/// merging lose nothing; the product is computed in x's dtype.
template <class Base>
class Lora : public Base {
 public:
  using Base::Base;

  /// Adds an adapter that changes nothing yet: A from kaiming_uniform(a = sqrt(5)), as PEFT does, with the given
  /// generator; B zero. Throws c10::ValueError when there is one already or the shape is impossible.
  void attach(const AdapterShape& shape, const std::optional<at::Generator>& generator = std::nullopt) {
    TORCH_CHECK_VALUE(!lora_B, "ilme::lora::Lora: an adapter is attached already");
    TORCH_CHECK_VALUE(shape.rank > 0, "ilme::lora::Lora: rank ", shape.rank, ", expected 1 or more");
    TORCH_CHECK_VALUE(shape.dropout >= 0 && shape.dropout < 1, "ilme::lora::Lora: dropout ", shape.dropout,
                      ", expected 0 <= dropout < 1");
    const c10::NoGradGuard no_gradient;
    const at::Tensor& weight = this->weight;
    // A base that is still on the meta device will be loaded; what an adapter begins with is drawn here.
    const auto options = weight.options().dtype(precise_type()).device(weight.is_meta() ? at::kCPU : weight.device());
    lora_A = this->register_module("lora_A", std::make_shared<nn::Linear>(weight.size(1), shape.rank, options));
    lora_B = this->register_module("lora_B", std::make_shared<nn::Linear>(shape.rank, weight.size(0), options));
    const double bound = 1.0 / std::sqrt(static_cast<double>(weight.size(1)));
    at::Tensor values = at::empty(lora_A->weight.sizes(), at::kFloat);
    values.uniform_(-bound, bound, generator);
    lora_A->weight.copy_(values);
    lora_B->weight.zero_();
    shape_ = shape;
  }

  /// Drops the adapter: the module computes what its base does.
  void detach_adapter() {
    if (!attached()) return;
    this->unregister_module("lora_A");
    this->unregister_module("lora_B");
    lora_A = lora_B = nullptr;
  }

  bool attached() const noexcept { return lora_B != nullptr; }
  const AdapterShape& shape() const noexcept { return shape_; }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor base = Base::forward(x);
    if (!attached()) return base;
    const at::Tensor input =
        shape_.dropout > 0 && this->is_training() ? at::dropout(x, shape_.dropout, /*train=*/true) : x;
    const auto product = [&](const at::Tensor& in, const at::Tensor& factor) {
      return at::linear(in, factor.to(x.scalar_type()));
    };
    return base + product(product(input, lora_A->weight), lora_B->weight) * shape_.scaling;
  }

  /// The weight with the adapter folded in, computed in float32 (float64 for float64) and rounded once to the weight's
  /// dtype. The weight itself is not changed.
  at::Tensor merged_weight() const {
    const c10::NoGradGuard no_gradient;
    const at::Tensor& weight = this->weight;
    if (!attached()) return weight.detach().clone();
    const at::Tensor product = at::mm(lora_B->weight, lora_A->weight);
    return (weight.to(precise_type()) + product * shape_.scaling).to(weight.scalar_type());
  }

  std::shared_ptr<nn::Linear> lora_A, lora_B;  ///< null without an adapter

 private:
  at::ScalarType precise_type() const { return this->weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

  AdapterShape shape_;
};

}  // namespace ilme::lora
