/// The linear map that models are built of.
#pragma once

#include <optional>
#include <type_traits>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <ilme/ops/linear.hpp>
#include <ilme/ops/policy.hpp>

namespace ilme::nn {

/// y = x @ weight^T + bias, x [..., in_features], weight [out_features, in_features], bias [out_features] or none
/// (uninitialised until they are loaded or initialised; see Llama::initialize).
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const at::TensorOptions& options, bool bias = false)
      : weight(register_parameter("weight", at::empty({out_features, in_features}, options))) {
    if (bias) this->bias = register_parameter("bias", at::empty({out_features}, options));
  }

  at::Tensor forward(const at::Tensor& x) { return ops::linear(x, weight, bias); }

  at::Tensor weight;
  at::Tensor bias;  ///< undefined without one
};

/// The same by ATen's plain operation: the twin.
class PlainLinear : public Linear {
 public:
  using Linear::Linear;

  at::Tensor forward(const at::Tensor& x) {
    return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
  }
};

/// The linear map that a model with a policy has unless it is given another.
template <class Ops>
using LinearOf = std::conditional_t<std::is_same_v<Ops, ops::Reference>, PlainLinear, Linear>;

}  // namespace ilme::nn
