/// The token embedding: rows of a matrix.
#pragma once

#include <ATen/ATen.h>

namespace ilme::ops {

/// Rows of weight [vocabulary, size] for ids int64 of any shape: [..., size]. The gradient is a dense matrix.
inline at::Tensor embedding_reference(const at::Tensor& weight, const at::Tensor& ids) {
  return at::embedding(weight, ids);
}

}  // namespace ilme::ops
