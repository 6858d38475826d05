/// The part of a parameter that one rank holds and updates.
#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include <ilme/io/tensor_slice.hpp>

namespace ilme::optim {

using ParameterSlice = io::TensorSlice;
using io::whole_slices;

/// Gives the saved state of a parameter to an optimizer that goes on from it: fills `target` with part `kind` ("step",
/// "exp_avg") of it, the slice's elements where the part has one for each, converted to the target's type; false when
/// there is none.
using StateReader = std::function<bool(const ParameterSlice& slice, const std::string& kind, const at::Tensor& target)>;

}  // namespace ilme::optim
