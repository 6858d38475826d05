/// The linear map y = x @ weight^T + bias, with a path of its own for the few rows of generation.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

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

}  // namespace detail

/// x @ weight^T + bias: x [..., in], weight [out, in], bias [out] or undefined. Where ilme::kernels is linked, at most
/// kFewRows rows without gradients on the CPU are multiplied by its kernel: in float32, bf16 or fp16 with sums in
/// float32, and a row's result does not depend on the rows beside it. at::linear otherwise.
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  if (detail::has_linear_kernel(x, weight, bias)) {
    return detail::few_rows_linear(x, weight, bias, weight.scalar_type());
  }
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

/// Logits float32 [..., vocabulary] of hidden states [..., hidden] for the head's weight [vocabulary, hidden], without
/// gradients. Few rows on the CPU are not rounded to the weight's type on the way.
inline at::Tensor logits(const at::Tensor& hidden, const at::Tensor& weight) {
  const c10::NoGradGuard no_gradient;
  if (detail::has_linear_kernel(hidden, weight, {})) return detail::few_rows_linear(hidden, weight, {}, at::kFloat);
  return at::linear(hidden, weight).to(at::kFloat);
}

}  // namespace ilme::ops
