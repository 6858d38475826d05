/// The part of a parameter that one rank holds and updates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/optim/parameter_group.hpp>

namespace ilme::optim {

/// A parameter, or what a rank has of it.
struct ParameterSlice {
  std::string name;   ///< of the whole parameter
  at::Tensor tensor;  ///< the whole, of `shape`; or in one dimension, maybe empty, elements from `begin` on
  std::vector<std::int64_t> shape;  ///< of the whole
  std::int64_t begin = 0;           ///< in the whole's elements, row-major

  std::int64_t end() const { return begin + tensor.numel(); }
  /// Elements of the whole.
  std::int64_t whole_numel() const {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) numel *= size;
    return numel;
  }
  bool is_whole() const { return begin == 0 && tensor.numel() == whole_numel(); }
};

/// Gives the saved state of a parameter to an optimizer that goes on from it: fills `target` with part `kind` ("step",
/// "exp_avg") of it, the slice's elements where the part has one for each, converted to the target's type; false when
/// there is none.
using StateReader = std::function<bool(const ParameterSlice& slice, const std::string& kind, const at::Tensor& target)>;

/// Whole parameters as slices.
inline std::vector<ParameterSlice> whole_slices(const NamedParameters& parameters) {
  std::vector<ParameterSlice> slices;
  for (const auto& [name, tensor] : parameters) slices.push_back({name, tensor, tensor.sizes().vec(), 0});
  return slices;
}

}  // namespace ilme::optim
