/// The log-probability, or the loss, of every token by itself, never holding more logits than a chunk: for evaluation
/// and for losses of whole sequences.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/ops/chunked_head.hpp>
#include <ilme/ops/cross_entropy.hpp>

namespace ilme::ops {

/// The twin of token_log_probabilities below: over logits that exist as a whole.
inline at::Tensor token_log_probabilities_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                                    const at::Tensor& labels, const CrossEntropyOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options, "ilme::ops::token_log_probabilities");
  const at::Tensor logits = at::matmul(head.hidden, weight.narrow(0, 0, head.vocabulary).t());
  at::Tensor used = logits.to(detail::accumulate_type(logits));
  if (options.soft_cap > 0) used = (used / options.soft_cap).tanh() * options.soft_cap;
  return at::cross_entropy_loss(used, head.labels, {}, at::Reduction::None, options.ignore_index).neg();
}

namespace detail {

/// What the gradient of a sequence's loss with respect to its logits is depends on all tokens of the sequence, so the
/// backward computes the logits again: four matrix products in all instead of three.
struct TokenLogProbabilitiesFunction : torch::autograd::Function<TokenLogProbabilitiesFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels, const at::Tensor& rows,
                            std::int64_t vocabulary, const CrossEntropyOptions& options) {
    const Head head{hidden, weight, labels, rows, vocabulary};
    HeadGradients none(head, false, weight_sum(weight, false));
    const at::Tensor log_probabilities = at::empty({head.counted()}, hidden.options().dtype(accumulate_type(hidden)));
    const at::Tensor normalizers = at::empty_like(log_probabilities);
    for_each_chunk(head, options.chunk_bytes, none, [&](const at::Tensor& logits, std::int64_t begin) {
      const std::int64_t count = logits.size(0);
      cross_entropy_forward(
          logits, head.select(head.labels, begin, count), options, vocabulary,
          {at::Tensor(), normalizers.narrow(0, begin, count), log_probabilities.narrow(0, begin, count)});
    });
    context->save_for_backward({hidden, weight, labels, rows, normalizers});
    context->saved_data["vocabulary"] = vocabulary;
    context->saved_data["options"] = c10::IValue::make_capsule(c10::make_intrusive<OptionsHolder>(options));
    return head.spread(log_probabilities);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &normalizers = saved[4];
    const Head head{saved[0], weight, saved[2], saved[3], context->saved_data["vocabulary"].toInt()};
    CrossEntropyOptions options =
        c10::static_intrusive_pointer_cast<OptionsHolder>(context->saved_data["options"].toCapsule())->options;
    options.label_smoothing = options.z_loss = 0.0;  // they are no part of a probability
    const bool want_weight = context->needs_input_grad(1);
    GradientReceiver* const receiver = want_weight ? gradient_receiver(weight) : nullptr;
    HeadGradients gradients(head, context->needs_input_grad(0),
                            receiver != nullptr ? receiver->accumulator() : weight_sum(weight, want_weight));
    const at::Tensor scales = upstream[0].neg();
    for_each_chunk(head, options.chunk_bytes, gradients, [&](const at::Tensor& logits, std::int64_t begin) {
      const std::int64_t count = logits.size(0);
      cross_entropy_backward(logits, head.select(head.labels, begin, count), normalizers.narrow(0, begin, count),
                             head.select(scales, begin, count), options, head.vocabulary, logits);
    });
    at::Tensor d_weight;
    if (want_weight && receiver == nullptr) d_weight = gradients.weight.to(weight.scalar_type());
    return {gradients.hidden, d_weight, {}, {}, {}, {}};
  }
};

}  // namespace detail

/// log softmax(c(hidden @ weight^T))[label] for each row of hidden [..., hidden_size], weight [vocabulary, hidden_size]
/// of the same dtype, labels int64 of hidden's leading shape; of the options, label_smoothing and z_loss take no part.
/// Returns float32 [rows] (float64 for float64), 0 where the label is ignored; differentiable, first derivatives only:
/// the backward computes the logits a second time. A weight that has a gradient receiver gets its gradient added there.
/// Throws as linear_cross_entropy does.
inline at::Tensor token_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                          const CrossEntropyOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options, "ilme::ops::token_log_probabilities");
  return detail::TokenLogProbabilitiesFunction::apply(head.hidden, weight, head.labels, head.rows, head.vocabulary,
                                                      options);
}

/// -log softmax(hidden @ weight^T)[label] for each row of hidden, without a gradient: as token_log_probabilities.
/// Logits are rounded to the dtype of hidden, as Transformers rounds them.
inline at::Tensor token_losses(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                               std::int64_t vocabulary_size = 0, std::int64_t chunk_bytes = std::int64_t{32} << 20) {
  const c10::NoGradGuard no_gradient;
  return token_log_probabilities(hidden, weight, labels,
                                 {.chunk_bytes = chunk_bytes, .vocabulary_size = vocabulary_size})
      .neg();
}

}  // namespace ilme::ops
