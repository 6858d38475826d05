/// Matrix products on the CPU whose sums are float32 to the end: for activations, and for weight gradients that are
/// added where they are kept.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops::detail {

/// Fewer rows than this are left to ATen: a weight would be brought into the kernel's layout for too little work
/// (benchmarks/ops/matrix_product.cpp).
inline constexpr std::int64_t kProductRows = 128;

/// A matrix as the kernel takes it: its rows contiguous, or those of its transpose.
inline bool has_contiguous_side(const at::Tensor& x) {
  return x.dim() == 2 &&
         ((x.stride(1) == 1 && x.stride(0) >= x.size(1)) || (x.stride(0) == 1 && x.stride(1) >= x.size(0)));
}

/// Whether ilme::kernels has the product of these [m, k] and [k, n] on this processor, and is the faster one for it.
inline bool has_product_kernel(const at::Tensor& a, const at::Tensor& b) {
  const kernels::DeviceTable& cpu = kernels::table().cpu;
  const auto type = kernel_dtype(a.scalar_type());
  return cpu.matrix_product != nullptr && type && cpu.has_matrix_product(*type) && a.scalar_type() == b.scalar_type() &&
         a.is_cpu() && b.is_cpu() && has_contiguous_side(a) && has_contiguous_side(b) && a.size(0) >= kProductRows &&
         a.size(1) >= 16 && b.size(1) >= 16;
}

/// The kernel on operands that has_product_kernel accepts; c has contiguous rows.
inline void product_kernel(at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add) {
  const bool a_transposed = a.stride(1) != 1, b_transposed = b.stride(1) != 1;
  check_kernel(kernels::table().cpu.matrix_product(
      {a.const_data_ptr(), b.const_data_ptr(), c.mutable_data_ptr(), a.size(0), b.size(1), a.size(1),
       a.stride(a_transposed ? 1 : 0), b.stride(b_transposed ? 1 : 0), c.stride(0), a_transposed, b_transposed, add,
       *kernel_dtype(a.scalar_type()), *kernel_dtype(c.scalar_type())}));
}

/// a @ b in their dtype into c [m, n] with contiguous rows: a [m, k], b [k, n], either may be a transposed view. No
/// autograd.
inline void product_into(at::Tensor c, const at::Tensor& a, const at::Tensor& b) {
  const c10::NoGradGuard no_gradient;
  if (has_product_kernel(a, b)) {
    product_kernel(c, a, b, /*add=*/false);
  } else {
    at::mm_out(c, a, b);
  }
}

/// The same in a new tensor.
inline at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options().requires_grad(false));
  product_into(c, a, b);
  return c;
}

/// sum (+)= a^T @ b: sum [m, n] float32 (float64 for float64 operands) with contiguous rows, a [rows, m], b [rows, n].
/// `overwrite`: sum holds nothing yet. With the kernel, and in float32, nothing of the sum is rounded in between;
/// otherwise the product of 16-bit operands is rounded to their dtype before it is added.
inline void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool overwrite) {
  const c10::NoGradGuard no_gradient;
  const at::Tensor a_t = a.t();
  if (has_product_kernel(a_t, b)) {
    product_kernel(sum, a_t, b, !overwrite);
  } else if (sum.scalar_type() == a.scalar_type()) {
    overwrite ? at::mm_out(sum, a_t, b) : sum.addmm_(a_t, b);
  } else {
    const at::Tensor rounded = at::mm(a_t, b);
    overwrite ? sum.copy_(rounded) : sum.add_(rounded);
  }
}

/// The dtype that gradients of `x` are summed in.
inline at::ScalarType precise_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The gradient dy^T @ x of a weight [out, in]: left with the weight's gradient receiver, and undefined then; else in
/// the weight's dtype, for autograd. dy [rows, out], x [rows, in].
inline at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x) {
  if (GradientReceiver* receiver = gradient_receiver(weight)) {
    auto [sum, empty] = receiver->accumulator();
    add_product(sum, dy, x, empty);
    return {};
  }
  return product(dy.t(), x);
}

}  // namespace ilme::ops::detail
