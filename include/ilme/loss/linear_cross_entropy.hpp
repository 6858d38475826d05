/// Language-model losses as modules that a trainer composes with.
#pragma once

#include <concepts>

#include <ATen/core/Tensor.h>

#include <ilme/ops/linear_cross_entropy.hpp>

namespace ilme::loss {

/// A loss over hidden states [batch, sequence, hidden], the head's weight [vocabulary, hidden] and labels int64 [batch,
/// sequence]; returns the sum of token losses and the number of tokens in it.
template <class Loss>
concept LossModule = requires(Loss& loss, const at::Tensor& t) {
  { loss(t, t, t) } -> std::convertible_to<ops::LossSum>;
};

/// Cross-entropy of the next token, fused with the head: the logits never exist as a whole
/// (ops/linear_cross_entropy.hpp).
struct LinearCrossEntropy {
  ops::CrossEntropyOptions options = {};

  ops::LossSum operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    return ops::linear_cross_entropy(hidden, weight, labels, options);
  }
};

/// The same value over full logits, with the fused kernel over them: for small vocabularies.
struct CrossEntropy {
  ops::CrossEntropyOptions options = {};

  ops::LossSum operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) const {
    // Padding columns are not even computed; as a temporary, the logits make room for their gradient.
    ops::CrossEntropyOptions over_logits = options;
    over_logits.vocabulary_size = 0;
    const at::Tensor used = options.vocabulary_size > 0 ? weight.narrow(0, 0, options.vocabulary_size) : weight;
    return ops::cross_entropy(at::matmul(hidden, used.t()), labels, over_logits);
  }
};

}  // namespace ilme::loss
