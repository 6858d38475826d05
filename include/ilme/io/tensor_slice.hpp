/// A tensor, or the part of it that one rank holds.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ilme::io {

/// All of a tensor, or elements [begin, end()) of it, counted row by row.
struct TensorSlice {
  std::string name;   ///< of the whole tensor
  at::Tensor tensor;  ///< the whole, of `shape`; or in one dimension, maybe empty, elements from `begin` on
  std::vector<std::int64_t> shape;  ///< of the whole
  std::int64_t begin = 0;

  std::int64_t end() const { return begin + tensor.numel(); }
  /// Elements of the whole.
  std::int64_t whole_numel() const {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) numel *= size;
    return numel;
  }
  bool is_whole() const { return begin == 0 && tensor.numel() == whole_numel(); }
};

/// Whole tensors as slices.
inline std::vector<TensorSlice> whole_slices(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<TensorSlice> slices;
  for (const auto& [name, tensor] : tensors) slices.push_back({name, tensor, tensor.sizes().vec(), 0});
  return slices;
}

}  // namespace ilme::io
