/// What a trainer needs of an optimizer.
#pragma once

#include <concepts>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::optim {

/// `named_parameters()` gives the tensors that it may update, `slices()` the same with their place in the whole
/// parameters; `step(gradients, learning_rate, divisor)` takes their gradients in that order, undefined for those that
/// do not train now, and divides them by `divisor` (a float32 scalar tensor) first. For checkpoints:
/// `updated_parameters()` are those that are not what they were at the start; `state()` names what is kept of each,
/// "<parameter>.<kind>", of the slice's sizes or of its own; `load_state(read)` takes that over.
template <class O>
concept Optimizer = requires(O& optimizer, std::vector<at::Tensor>& gradients, const std::optional<at::Tensor>& divisor,
                             const StateReader& read) {
  { optimizer.named_parameters() } -> std::convertible_to<NamedParameters>;
  { optimizer.slices() } -> std::convertible_to<std::vector<ParameterSlice>>;
  optimizer.step(gradients, 1e-3, divisor);
  { optimizer.updated_parameters() } -> std::convertible_to<NamedParameters>;
  { optimizer.state() } -> std::convertible_to<NamedParameters>;
  optimizer.load_state(read);
};

}  // namespace ilme::optim
