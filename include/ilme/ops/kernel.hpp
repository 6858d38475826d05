/// How operations call compiled kernels.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <ilme/kernels/abi.hpp>

namespace ilme::ops::detail {

/// The element type in a kernel's terms; none for those that no kernel has.
inline std::optional<kernels::DType> kernel_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::DType::float32;
    case at::kBFloat16:
      return kernels::DType::bfloat16;
    case at::kHalf:
      return kernels::DType::float16;
    default:
      return std::nullopt;
  }
}

/// Whether a kernel of the CPU can take these tensors together: one dtype that it has, all on the CPU.
template <class... Tensors>
bool fits_cpu_kernel(const at::Tensor& first, const Tensors&... others) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.scalar_type() == first.scalar_type();
  };
  return kernel_dtype(first.scalar_type()) && fits(first) && (fits(others) && ...);
}

/// Where a backward may write a gradient that has the shape of the one it got: over that one if nobody else can see it,
/// so that large gradients do not lie beside each other; new memory else. Ask before taking another reference to it.
inline at::Tensor gradient_space(const at::Tensor& incoming) {
  const bool unseen = incoming.use_count() == 1 && incoming.storage().use_count() == 1 && incoming.is_contiguous() &&
                      !c10::GradMode::is_enabled();
  return unseen ? incoming : at::empty(incoming.sizes(), incoming.options());
}

inline void check_kernel(const char* error) { TORCH_CHECK(error == nullptr, "ilme::kernels: ", error); }

}  // namespace ilme::ops::detail
