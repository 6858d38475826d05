/// Products for weight gradients, summed in float32.
#pragma once

#include <ATen/ATen.h>

namespace ilme::ops::detail {

/// sum [m, n] (+)= a^T b for a [rows, m] and b [rows, n]; `overwrite`: the contents of the sum are undefined. The sum is
/// float32 (float64 for float64).
inline void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool overwrite) {
  if (a.scalar_type() == sum.scalar_type()) {
    if (overwrite) {
      at::mm_out(sum, a.t(), b);
    } else {
      sum.addmm_(a.t(), b);
    }
  } else if (overwrite) {
    sum.copy_(at::mm(a.t(), b));
  } else {
    sum.add_(at::mm(a.t(), b));
  }
}

}  // namespace ilme::ops::detail
