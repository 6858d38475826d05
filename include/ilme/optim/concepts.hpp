/// What a trainer needs of an optimizer.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ilme::optim {

/// `parameters()` gives the tensors that it updates; `step(gradients, learning_rate, clip)` takes their gradients in
/// that order and divides them by `clip` first; `state()` and `load_state(find)` carry named tensors to and from a
/// checkpoint.
template <class O>
concept Optimizer = requires(O& optimizer, std::vector<at::Tensor>& gradients, const std::optional<at::Tensor>& clip,
                             const std::function<at::Tensor(const std::string&)>& find) {
  { optimizer.parameters() } -> std::convertible_to<std::vector<at::Tensor>>;
  optimizer.step(gradients, 1e-3, clip);
  { optimizer.state() } -> std::convertible_to<std::vector<std::pair<std::string, at::Tensor>>>;
  optimizer.load_state(find);
};

}  // namespace ilme::optim
