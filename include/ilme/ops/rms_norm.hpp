/// Root-mean-square normalisation (Zhang & Sennrich 2019): the plain path and the fused kernel.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

/// weight * round(x / sqrt(mean(x^2) + eps)) over the last dimension, x [..., size], weight [size] of the same dtype;
/// statistics in float32 (float64 for float64), as Transformers' LlamaRMSNorm computes it. The twin of rms_norm below.
inline at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor precise = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor scale = precise.pow(2).mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return weight * (precise * scale).to(x.scalar_type());
}

namespace detail {

/// The kernel's forward for contiguous tensors; `inv_rms` takes a float32 a row, or is null.
inline at::Tensor rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps, float* inv_rms) {
  at::Tensor y = at::empty_like(x);
  if (x.numel() > 0) {
    check_kernel(kernels::table().cpu.rms_norm_forward(
        {x.const_data_ptr(), weight.const_data_ptr(), y.mutable_data_ptr(), inv_rms, x.numel() / x.size(-1), x.size(-1),
         static_cast<float>(eps), *kernel_dtype(x.scalar_type()), /*stream=*/nullptr}));
  }
  return y;
}

/// Saves x, the weight and one float32 a row; the composed form saves four tensors of x's size.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const at::Tensor rows = x.contiguous(), scale = weight.contiguous();
    at::Tensor inv_rms =
        at::empty({rows.size(-1) == 0 ? 0 : rows.numel() / rows.size(-1)}, rows.options().dtype(at::kFloat));
    const at::Tensor y = rms_norm_rows(rows, scale, eps, inv_rms.mutable_data_ptr<float>());
    context->save_for_backward({rows, scale, inv_rms});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inv_rms = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    const std::int64_t count = inv_rms.numel(), size = x.size(-1);
    const bool want_weight = context->needs_input_grad(1);
    at::Tensor dx = at::empty_like(x);
    at::Tensor dweight;
    if (want_weight) dweight = at::zeros({size}, x.options().dtype(at::kFloat));
    if (count > 0) {
      const kernels::DeviceTable& cpu = kernels::table().cpu;
      at::Tensor workspace = at::empty({cpu.rms_norm_backward_workspace(count, size)}, x.options().dtype(at::kFloat));
      check_kernel(cpu.rms_norm_backward(
          {dy.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), inv_rms.const_data_ptr<float>(),
           dx.mutable_data_ptr(), want_weight ? dweight.mutable_data_ptr<float>() : nullptr,
           workspace.mutable_data_ptr<float>(), count, size, *kernel_dtype(x.scalar_type()), /*stream=*/nullptr}));
    }
    if (want_weight) dweight = dweight.to(weight.scalar_type());
    return {dx, dweight, {}};
  }
};

}  // namespace detail

/// As rms_norm_reference, in one pass by ilme::kernels where the target is linked and has a kernel for x's device and
/// dtype (CPU: float32, bf16, fp16); composed of ATen operations otherwise. First derivatives only.
inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  TORCH_CHECK_VALUE(weight.dim() == 1 && x.size(-1) == weight.size(0), "ilme::ops::rms_norm: x ", x.sizes(),
                    " does not fit the weight ", weight.sizes());
  const bool kernel = x.device().is_cpu() && x.scalar_type() == weight.scalar_type() &&
                      detail::kernel_dtype(x.scalar_type()) && kernels::table().cpu.rms_norm_forward != nullptr;
  if (!kernel) return rms_norm_reference(x, weight, eps);
  if (!c10::GradMode::is_enabled()) return detail::rms_norm_rows(x.contiguous(), weight.contiguous(), eps, nullptr);
  return detail::RmsNormFunction::apply(x, weight, eps);
}

}  // namespace ilme::ops
