/// How operations call compiled kernels.
#pragma once

#include <optional>

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

inline void check_kernel(const char* error) { TORCH_CHECK(error == nullptr, "ilme::kernels: ", error); }

}  // namespace ilme::ops::detail
