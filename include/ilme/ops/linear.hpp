/// The linear map y = x @ weight^T + bias, with a path of its own for the few rows of generation.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/kernel.hpp>
#include <ilme/ops/matrix_product.hpp>
#include <ilme/ops/value_not_needed.hpp>

namespace ilme::ops {

/// Up to so many rows the kernel is faster than ATen's matrix product, which is made for many
/// (benchmarks/ops/linear.cpp).
inline constexpr std::int64_t kFewRows = 16;

namespace detail {

/// Whether ilme::kernels has the product of few rows for these tensors, and no gradient is wanted.
inline bool has_linear_kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [&](const at::Tensor& t) {
    return t.device().is_cpu() && t.scalar_type() == weight.scalar_type() && t.is_contiguous();
  };
  return kernels::table().cpu.linear_forward != nullptr && !c10::GradMode::is_enabled() && weight.dim() == 2 &&
         x.dim() > 0 && x.size(-1) == weight.size(1) && weight.size(1) > 0 && x.numel() <= kFewRows * weight.size(1) &&
         kernel_dtype(weight.scalar_type()) && fits(weight) && fits(x) &&
         (!bias.defined() || (fits(bias) && bias.numel() == weight.size(0)));
}

inline at::Tensor few_rows_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  at::ScalarType type) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor y = at::empty(shape, x.options().dtype(type));
  check_kernel(kernels::table().cpu.linear_forward(
      {x.const_data_ptr(), weight.const_data_ptr(), bias.defined() ? bias.const_data_ptr() : nullptr,
       y.mutable_data_ptr(), x.numel() / x.size(-1), x.size(-1), weight.size(0), *kernel_dtype(weight.scalar_type()),
       *kernel_dtype(type)}));
  return y;
}

/// Saves x only where the weight trains.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    context->save_for_backward({weight.requires_grad() ? x : at::Tensor(), weight});
    context->saved_data["bias"] = bias.value_or(at::Tensor());
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    if (ValueNotNeeded::active()) return at::zeros({}, x.options()).expand(shape);
    at::Tensor y = product(x.reshape({-1, x.size(-1)}), weight.t());
    if (bias) y.add_(*bias);
    return y.view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    const at::Tensor bias = context->saved_data["bias"].toTensor();
    const at::Tensor rows = dy.reshape({-1, weight.size(0)});
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) {
      std::vector<std::int64_t> shape = dy.sizes().vec();
      shape.back() = weight.size(1);
      dx = product(rows, weight).view(shape);
    }
    if (x.defined()) dweight = weight_gradient(weight, rows, x.reshape({-1, weight.size(1)}));
    if (bias.defined() && bias.requires_grad()) {
      dbias = rows.sum(0, /*keepdim=*/false, precise_type(bias));
      if (GradientReceiver* receiver = gradient_receiver(bias)) {
        receiver->take(std::exchange(dbias, {}));
      } else {
        dbias = dbias.to(bias.scalar_type());
      }
    }
    return {dx, dweight, dbias};
  }
};

}  // namespace detail

/// x @ weight^T + bias: x [..., in], weight [out, in], bias [out] or undefined, all of one dtype. Where ilme::kernels
/// is linked, products on the CPU are its own: at most kFewRows rows without gradients are multiplied in float32, bf16
/// or fp16 so that a row's result does not depend on the rows beside it, and many rows in float32 or bf16 in blocks.
/// Gradients of a weight or bias that has a gradient receiver are added there, in float32 (ops/gradient_receiver.hpp);
/// first derivatives only.
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && x.dim() > 0 && x.size(-1) == weight.size(1) &&
                        (!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0))),
                    "ilme::ops::linear: x ", x.sizes(), ", weight ", weight.sizes(), " and bias ",
                    bias.defined() ? bias.sizes() : at::IntArrayRef(), " do not fit each other");
  if (detail::has_linear_kernel(x, weight, bias)) {
    return detail::few_rows_linear(x, weight, bias, weight.scalar_type());
  }
  const std::optional<at::Tensor> given_bias = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  if (x.scalar_type() != weight.scalar_type() || x.numel() == 0) return at::linear(x, weight, given_bias);
  return detail::LinearFunction::apply(x, weight, given_bias);
}

/// Logits float32 [..., vocabulary] of hidden states [..., hidden] for the head's weight [vocabulary, hidden], without
/// gradients. Few rows on the CPU are not rounded to the weight's type on the way.
inline at::Tensor logits(const at::Tensor& hidden, const at::Tensor& weight) {
  const c10::NoGradGuard no_gradient;
  if (detail::has_linear_kernel(hidden, weight, {})) return detail::few_rows_linear(hidden, weight, {}, at::kFloat);
  return at::linear(hidden, weight).to(at::kFloat);
}

}  // namespace ilme::ops
