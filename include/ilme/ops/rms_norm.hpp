/// Root-mean-square normalisation (Zhang & Sennrich 2019), alone and after a residual addition: the plain paths and the
/// fused kernel.
#pragma once

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

/// weight * round(x / sqrt(mean(x^2) + eps)) over the last dimension, x [..., size], weight [size] of the same dtype;
/// statistics in float32 (float64 for float64), as Transformers' LlamaRMSNorm computes it. The twin of rms_norm below.
inline at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor precise = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const at::Tensor scale = precise.pow(2).mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return weight * (precise * scale).to(x.scalar_type());
}

/// {x + branch, rms_norm_reference of that}: the sum is rounded to the dtype before it is normalised. The twin of
/// add_rms_norm below.
inline std::pair<at::Tensor, at::Tensor> add_rms_norm_reference(const at::Tensor& x, const at::Tensor& branch,
                                                                const at::Tensor& weight, double eps) {
  const at::Tensor sum = x + branch;
  return {sum, rms_norm_reference(sum, weight, eps)};
}

namespace detail {

/// Whether ilme::kernels normalises such an x; throws where the weight does not fit it.
inline bool has_rms_norm_kernel(const char* operation, const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK_VALUE(x.dim() > 0 && weight.dim() == 1 && x.size(-1) == weight.size(0), "ilme::ops::", operation, ": x ",
                    x.sizes(), " does not fit the weight ", weight.sizes());
  return fits_cpu_kernel(x, weight) && kernels::table().cpu.rms_norm_forward != nullptr;
}

inline std::int64_t row_count(const at::Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

/// The kernel's forward for contiguous tensors; `inv_rms` takes a float32 a row, or is null. With a `branch` that is
/// added to x, `sum` takes what is normalised.
inline at::Tensor rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps, float* inv_rms,
                                const at::Tensor& branch = {}, const at::Tensor& sum = {}) {
  at::Tensor y = at::empty_like(x);
  if (x.numel() > 0) {
    check_kernel(kernels::table().cpu.rms_norm_forward(
        {x.const_data_ptr(), weight.const_data_ptr(), y.mutable_data_ptr(), inv_rms, row_count(x), x.size(-1),
         static_cast<float>(eps), *kernel_dtype(x.scalar_type()), /*stream=*/nullptr,
         branch.defined() ? branch.const_data_ptr() : nullptr, branch.defined() ? sum.mutable_data_ptr() : nullptr}));
  }
  return y;
}

/// Writes dx, which may be dy or dsum, for contiguous x, weight and incoming gradients, and returns dweight, undefined
/// when it is not wanted or the weight has a GradientReceiver, which then has got it. `dsum`, when it is defined, is
/// added to dx.
inline at::Tensor rms_norm_backward_rows(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                         const at::Tensor& inv_rms, const at::Tensor& dx, bool want_weight,
                                         const at::Tensor& dsum = {}) {
  const std::int64_t count = inv_rms.numel(), size = x.size(-1);
  at::Tensor dweight;
  if (want_weight) dweight = at::zeros({size}, x.options().dtype(at::kFloat));
  if (count > 0) {
    const kernels::DeviceTable& cpu = kernels::table().cpu;
    at::Tensor workspace = at::empty({cpu.rms_norm_backward_workspace(count, size)}, x.options().dtype(at::kFloat));
    check_kernel(cpu.rms_norm_backward(
        {dy.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), inv_rms.const_data_ptr<float>(),
         dx.mutable_data_ptr(), want_weight ? dweight.mutable_data_ptr<float>() : nullptr,
         workspace.mutable_data_ptr<float>(), count, size, *kernel_dtype(x.scalar_type()), /*stream=*/nullptr,
         dsum.defined() ? dsum.const_data_ptr() : nullptr}));
  }
  if (!want_weight) return {};
  if (GradientReceiver* const receiver = gradient_receiver(weight)) {
    receiver->take(dweight);
    return {};
  }
  return dweight.to(weight.scalar_type());
}

/// Saves x, the weight and one float32 a row; the composed form saves four tensors of x's size.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const at::Tensor rows = x.contiguous(), scale = weight.contiguous();
    at::Tensor inv_rms = at::empty({row_count(rows)}, rows.options().dtype(at::kFloat));
    const at::Tensor y = rms_norm_rows(rows, scale, eps, inv_rms.mutable_data_ptr<float>());
    context->save_for_backward({rows, scale, inv_rms});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor dx = gradient_space(gradients[0]);
    const at::Tensor dweight = rms_norm_backward_rows(gradients[0].contiguous(), saved[0], saved[1], saved[2], dx,
                                                      context->needs_input_grad(1));
    return {dx, dweight, {}};
  }
};

/// Saves the sum, the weight and one float32 a row. The sum's own gradient is added to that of the norm in one pass.
struct AddRmsNormFunction : torch::autograd::Function<AddRmsNormFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                                                const at::Tensor& branch, const at::Tensor& weight, double eps) {
    const at::Tensor rows = x.contiguous(), scale = weight.contiguous();
    const at::Tensor sum = at::empty_like(rows);
    at::Tensor inv_rms = at::empty({row_count(rows)}, rows.options().dtype(at::kFloat));
    const at::Tensor y = rms_norm_rows(rows, scale, eps, inv_rms.mutable_data_ptr<float>(), branch.contiguous(), sum);
    context->save_for_backward({sum, scale, inv_rms});
    context->set_materialize_grads(false);
    return {sum, y};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor &of_sum = gradients[0], &of_norm = gradients[1];
    if (!of_norm.defined()) return {of_sum, of_sum, {}, {}};
    const auto saved = context->get_saved_variables();
    const at::Tensor dx = gradient_space(of_sum.defined() ? of_sum : of_norm);
    const at::Tensor dsum = of_sum.defined() ? of_sum.contiguous() : at::Tensor();
    const at::Tensor dweight = rms_norm_backward_rows(of_norm.contiguous(), saved[0], saved[1], saved[2], dx,
                                                      context->needs_input_grad(2), dsum);
    return {dx, dx, dweight, {}};
  }
};

}  // namespace detail

/// As rms_norm_reference, in one pass by ilme::kernels where the target is linked and has a kernel for x's device and
/// dtype (CPU: float32, bf16, fp16); composed of ATen operations otherwise. First derivatives only.
inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!detail::has_rms_norm_kernel("rms_norm", x, weight)) return rms_norm_reference(x, weight, eps);
  if (!c10::GradMode::is_enabled()) return detail::rms_norm_rows(x.contiguous(), weight.contiguous(), eps, nullptr);
  return detail::RmsNormFunction::apply(x, weight, eps);
}

/// The residual addition and the norm after it, {x + branch, rms_norm(x + branch)}: as add_rms_norm_reference, in one
/// pass by ilme::kernels where rms_norm has a kernel. x and branch [..., size] of one shape, weight [size], all of one
/// dtype; the sum is rounded to it before it is normalised. First derivatives only.
inline std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& branch,
                                                      const at::Tensor& weight, double eps) {
  TORCH_CHECK_VALUE(x.sizes() == branch.sizes(), "ilme::ops::add_rms_norm: x ", x.sizes(), " and branch ",
                    branch.sizes(), " have different shapes");
  if (!detail::has_rms_norm_kernel("add_rms_norm", x, weight) || !detail::fits_cpu_kernel(x, branch)) {
    return add_rms_norm_reference(x, branch, weight, eps);
  }
  if (c10::GradMode::is_enabled()) {
    const auto outputs = detail::AddRmsNormFunction::apply(x, branch, weight, eps);
    return {outputs[0], outputs[1]};
  }
  const at::Tensor rows = x.contiguous();
  at::Tensor sum = at::empty_like(rows);
  at::Tensor y = detail::rms_norm_rows(rows, weight.contiguous(), eps, nullptr, branch.contiguous(), sum);
  return {sum, y};
}

}  // namespace ilme::ops
