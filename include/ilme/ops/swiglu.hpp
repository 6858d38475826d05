/// SwiGLU activation (Shazeer 2020, "GLU variants improve Transformer").
#pragma once

#include <ATen/ATen.h>

namespace ilme::ops {

/// silu(gate) * up, element by element; both of the same shape and dtype.
inline at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

}  // namespace ilme::ops
