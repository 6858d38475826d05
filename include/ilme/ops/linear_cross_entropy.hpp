/// Cross-entropy of a language model's head, fused with the head: the logits never exist as a whole.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/ops/chunked_head.hpp>
#include <ilme/ops/cross_entropy.hpp>

namespace ilme::ops {

/// The twin of linear_cross_entropy below: hidden @ weight^T as a whole, then cross_entropy_reference.
inline LossSum linear_cross_entropy_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                              const at::Tensor& labels, const CrossEntropyOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options, "ilme::ops::linear_cross_entropy");
  CrossEntropyOptions over_logits = options;
  over_logits.vocabulary_size = 0;
  return cross_entropy_reference(at::matmul(head.hidden, weight.narrow(0, 0, head.vocabulary).t()), head.labels,
                                 over_logits);
}

namespace detail {

/// Upstream gradients of exactly 1, as of a trainer that differentiates the sum itself, need no pass over gigabytes.
/// Only on the CPU is it free to look.
inline void scale_by(at::Tensor& gradient, const at::Tensor& upstream) {
  if (!gradient.defined() || (upstream.is_cpu() && upstream.item<double>() == 1.0)) return;
  gradient.mul_(upstream);
}

/// Forward computes the loss and, chunk by chunk, both gradients while the chunk's logits are there (the idea of
/// Liger-Kernel's FusedLinearCrossEntropy, Hsu et al. 2024): three matrix products in all, as without fusion. The
/// weight's gradient is summed over chunks in float32. Backward scales and hands over.
struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                                                const at::Tensor& weight, const at::Tensor& labels,
                                                const at::Tensor& rows, std::int64_t vocabulary, bool hidden_gradient,
                                                bool weight_gradient, const CrossEntropyOptions& options) {
    const Head head{hidden, weight, labels, rows, vocabulary};
    HeadGradients gradients(head, hidden_gradient, weight_sum(weight, weight_gradient));
    const bool any_gradient = hidden_gradient || weight_gradient;
    const at::Tensor losses = at::empty({head.counted()}, hidden.options().dtype(accumulate_type(hidden)));
    const at::Tensor normalizers = at::empty_like(losses);
    const at::Tensor log_probabilities = options.token_log_probabilities ? at::empty_like(losses) : at::Tensor();
    for_each_chunk(head, options.chunk_bytes, gradients, [&](const at::Tensor& logits, std::int64_t begin) {
      const std::int64_t count = logits.size(0);
      const auto part = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, begin, count) : all; };
      cross_entropy_forward(logits, head.select(head.labels, begin, count), options, vocabulary,
                            {part(losses), part(normalizers), part(log_probabilities)},
                            any_gradient ? logits : at::Tensor());
    });
    context->saved_data["weight"] = weight;
    context->saved_data["d_hidden"] = gradients.hidden;
    context->saved_data["d_weight"] = gradients.weight;
    if (!options.token_log_probabilities) return {losses.sum()};
    at::Tensor spread = head.spread(log_probabilities);
    context->mark_non_differentiable({spread});
    return {losses.sum(), spread};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    TORCH_CHECK(context->saved_data.count("weight") == 1,
                "ilme::ops::linear_cross_entropy: its backward runs once; its gradients are freed after that");
    at::Tensor d_hidden = context->saved_data["d_hidden"].toTensor();
    at::Tensor d_weight = context->saved_data["d_weight"].toTensor();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    context->saved_data.clear();
    scale_by(d_hidden, upstream[0]);
    scale_by(d_weight, upstream[0]);
    return {d_hidden, hand_over(weight, std::move(d_weight)), {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace detail

/// Sum over the rows of hidden [..., hidden_size] of the loss that the options describe for their label (int64, the
/// same leading shape), with logits hidden @ weight^T in hidden's dtype, weight [vocabulary, hidden_size] of the same
/// dtype. Never holds more logits than options.chunk_bytes; ignored rows are left out before the matrix products. What
/// is not differentiated (a frozen head, hidden states that are frozen) costs nothing.
///
/// The weight's gradient is summed in float32; a weight that has a gradient receiver gets it there, without a copy when
/// the upstream gradient is 1, others through autograd. First derivatives only, once: the gradients are made in the
/// forward. No counted row: sum 0, gradients 0, tokens 0. Throws c10::IndexError for a label outside the vocabulary,
/// c10::ValueError for shapes that do not fit and options out of range.
inline LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                    const CrossEntropyOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options, "ilme::ops::linear_cross_entropy");
  const bool recording = c10::GradMode::is_enabled();
  const auto outputs = detail::LinearCrossEntropyFunction::apply(head.hidden, weight, head.labels, head.rows,
                                                                 head.vocabulary, recording && hidden.requires_grad(),
                                                                 recording && weight.requires_grad(), options);
  return {outputs[0], head.counted(), options.token_log_probabilities ? outputs[1] : at::Tensor()};
}

}  // namespace ilme::ops
