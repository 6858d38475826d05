/// SwiGLU activation (Shazeer 2020, "GLU variants improve Transformer"): the plain path and the fused kernel.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

/// silu(gate) * up, element by element; both of the same shape and dtype. The twin of swiglu below.
inline at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

namespace detail {

/// The kernel's forward for contiguous tensors.
inline at::Tensor swiglu_elements(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor out = at::empty_like(gate);
  check_kernel(
      kernels::table().cpu.swiglu_forward({gate.const_data_ptr(), up.const_data_ptr(), out.mutable_data_ptr(),
                                           gate.numel(), *kernel_dtype(gate.scalar_type()), /*stream=*/nullptr}));
  return out;
}

/// Saves gate and up, which the products before keep anyway; the composed form saves silu(gate) too.
struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor x = gate.contiguous(), y = up.contiguous();
    context->save_for_backward({x, y});
    return swiglu_elements(x, y);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    at::Tensor dup = gradient_space(gradients[0]), dgate = at::empty_like(gate);
    const at::Tensor dout = gradients[0].contiguous();
    check_kernel(kernels::table().cpu.swiglu_backward(
        {dout.const_data_ptr(), gate.const_data_ptr(), up.const_data_ptr(), dgate.mutable_data_ptr(),
         dup.mutable_data_ptr(), gate.numel(), *kernel_dtype(gate.scalar_type()), /*stream=*/nullptr}));
    return {dgate, dup};
  }
};

}  // namespace detail

/// As swiglu_reference, in one pass by ilme::kernels where the target is linked (CPU: float32, bf16, fp16), in float32
/// and rounded once (the composed form rounds silu(gate) too); composed of ATen operations otherwise. The backward
/// computes the activation again. First derivatives only.
inline at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK_VALUE(gate.sizes() == up.sizes(), "ilme::ops::swiglu: gate ", gate.sizes(), " and up ", up.sizes(),
                    " have different shapes");
  if (!detail::fits_cpu_kernel(gate, up) || kernels::table().cpu.swiglu_forward == nullptr) {
    return swiglu_reference(gate, up);
  }
  if (!c10::GradMode::is_enabled()) return detail::swiglu_elements(gate.contiguous(), up.contiguous());
  return detail::SwigluFunction::apply(gate, up);
}

}  // namespace ilme::ops
