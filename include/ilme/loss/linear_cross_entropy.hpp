/// Language-model losses as modules that a trainer composes with.
#pragma once

#include <concepts>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include <ilme/ops/cross_entropy.hpp>

namespace ilme::loss {

/// A loss over hidden states [batch, sequence, hidden], the head's weight [vocabulary, hidden] and labels int64 [batch,
/// sequence]; returns the sum of token losses and the number of tokens in it.
template <class Loss>
concept LossModule = requires(Loss& loss, const at::Tensor& t) {
  { loss(t, t, t) } -> std::convertible_to<ops::LossSum>;
};

/// Cross-entropy of the next token, fused with the head: the logits never exist as a whole (ops/cross_entropy.hpp).
struct LinearCrossEntropy {
  std::int64_t chunk_bytes = std::int64_t{256} << 20;  ///< what a chunk of logits may take
  std::int64_t vocabulary_size = 0;                    ///< rows of the weight that stand for tokens; 0: all

  ops::LossSum operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    return ops::linear_cross_entropy(hidden, weight, labels, {chunk_bytes, vocabulary_size});
  }
};

/// The same value over full logits: the plain path, for comparison and for small vocabularies.
struct CrossEntropy {
  std::int64_t vocabulary_size = 0;  ///< as in LinearCrossEntropy

  ops::LossSum operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    return ops::linear_cross_entropy_reference(hidden, weight, labels, vocabulary_size);
  }
};

}  // namespace ilme::loss
