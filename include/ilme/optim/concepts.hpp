/// What a trainer needs of an optimizer.
#pragma once

#include <concepts>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/optim/parameter_group.hpp>

namespace ilme::optim {

/// `named_parameters()` gives the tensors that it may update; `step(gradients, learning_rate, divisor)` takes their
/// gradients in that order, undefined for those that do not train now, and divides them by `divisor`
/// (a float32 scalar tensor) first. For
/// checkpoints: `updated_parameters()` are those that are not what they were at the start, `state()` and
/// `load_state(state)` carry named tensors.
template <class O>
concept Optimizer = requires(O& optimizer, std::vector<at::Tensor>& gradients, const std::optional<at::Tensor>& divisor,
                             const NamedParameters& state) {
  { optimizer.named_parameters() } -> std::convertible_to<NamedParameters>;
  optimizer.step(gradients, 1e-3, divisor);
  { optimizer.updated_parameters() } -> std::convertible_to<NamedParameters>;
  { optimizer.state() } -> std::convertible_to<NamedParameters>;
  optimizer.load_state(state);
};

}  // namespace ilme::optim
