/// The two weight-holding leaves of a model: a linear map without bias, and a token embedding.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

namespace ilme::nn {

/// y = x @ weight^T, x [..., in_features], weight [out_features, in_features] (uninitialised until it is loaded or
/// initialised; see Llama::initialize).
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const at::TensorOptions& options)
      : weight(register_parameter("weight", at::empty({out_features, in_features}, options))) {}

  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }

  at::Tensor weight;
};

/// Rows of weight [vocab_size, hidden_size] for ids int64 of any shape: [..., hidden_size].
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t vocab_size, std::int64_t hidden_size, const at::TensorOptions& options)
      : weight(register_parameter("weight", at::empty({vocab_size, hidden_size}, options))) {}

  at::Tensor forward(const at::Tensor& ids) { return at::embedding(weight, ids); }

  at::Tensor weight;
};

}  // namespace ilme::nn
