/// Cross-entropy over logits that exist as a whole: the plain path and the fused kernel. With the head fused in, so
/// that they never do: ops/linear_cross_entropy.hpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <ilme/ops/cross_entropy_rows.hpp>

namespace ilme::ops {

/// A sum of token losses (float32 scalar, differentiable; float64 for float64 input) and the number of tokens in it:
/// divide by the tokens of the whole optimizer step, over all micro-batches and ranks, for the mean.
struct LossSum {
  at::Tensor sum;
  std::int64_t tokens = 0;
  /// log softmax(logits)[label] of every row, [rows] of the sum's dtype, 0 where the label is ignored; not
  /// differentiable (ops::token_log_probabilities is). Undefined unless the options ask for it.
  at::Tensor token_log_probabilities = {};

  /// The mean over `step_tokens` tokens, of which these may be a part; 0 tokens give 0.
  at::Tensor mean_over(std::int64_t step_tokens) const {
    return sum / static_cast<double>(std::max<std::int64_t>(step_tokens, 1));
  }
  /// The mean over these tokens; 0 tokens give 0 and zero gradients, where torch gives NaN.
  at::Tensor mean() const { return mean_over(tokens); }
};

namespace detail {

inline void check_logits(const at::Tensor& logits, const at::Tensor& labels) {
  TORCH_CHECK_VALUE(logits.dim() >= 1 && logits.sizes().slice(0, logits.dim() - 1) == labels.sizes(),
                    "ilme::ops::cross_entropy: labels ", labels.sizes(), " do not fit logits ", logits.sizes());
}

struct OptionsHolder : torch::CustomClassHolder {
  explicit OptionsHolder(const CrossEntropyOptions& o) : options(o) {}
  CrossEntropyOptions options;
};

/// Losses [rows] and log-probabilities [rows] (not differentiable). Saves the logits and one number a row.
struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                                                const at::Tensor& labels, const CrossEntropyOptions& options,
                                                std::int64_t vocabulary) {
    // The tensor itself is saved where it can be: a view would keep a second hold of its memory.
    const at::Tensor contiguous = logits.contiguous();
    const at::Tensor loss = at::empty({labels.numel()}, logits.options().dtype(accumulate_type(logits)));
    RowOutputs out{loss, at::empty_like(loss), at::empty_like(loss)};
    cross_entropy_forward(contiguous.view({-1, logits.size(-1)}), labels, options, vocabulary, out);
    context->save_for_backward({contiguous, labels, out.log_normalizer});
    context->saved_data["vocabulary"] = vocabulary;
    context->saved_data["options"] = c10::IValue::make_capsule(c10::make_intrusive<OptionsHolder>(options));
    context->mark_non_differentiable({out.log_probability});
    return {out.loss, out.log_probability};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<OptionsHolder>(context->saved_data["options"].toCapsule());
    // Two holds of the tensor are ours (the saved one and this one), and one of its memory is the tensor's.
    const bool ours = saved[0].use_count() <= 2 && saved[0].storage().use_count() == 1 &&
                      !torch::autograd::get_current_graph_task_keep_graph();
    const at::Tensor logits = saved[0].detach();
    const at::Tensor gradient = ours ? logits : at::empty_like(logits);
    cross_entropy_backward(logits.view({-1, logits.size(-1)}), saved[1], saved[2], gradients[0].contiguous(),
                           holder->options, context->saved_data["vocabulary"].toInt(),
                           gradient.view({-1, logits.size(-1)}));
    return {gradient, {}, {}, {}};
  }
};

}  // namespace detail

/// The twin of cross_entropy below: ATen operations in float32 (float64 for float64).
inline LossSum cross_entropy_reference(const at::Tensor& logits, const at::Tensor& labels,
                                       const CrossEntropyOptions& options = {}) {
  detail::check_logits(logits, labels);
  const std::int64_t vocabulary = detail::check_options(options, logits.size(-1), "ilme::ops::cross_entropy");
  const at::Tensor targets = labels.flatten();
  const at::Tensor rows = detail::counted_rows(targets, vocabulary, options.ignore_index, "ilme::ops::cross_entropy");
  at::Tensor used = logits.flatten(0, -2).narrow(1, 0, vocabulary).to(detail::accumulate_type(logits));
  if (options.soft_cap > 0) used = (used / options.soft_cap).tanh() * options.soft_cap;
  LossSum result{
      at::cross_entropy_loss(used, targets, {}, at::Reduction::Sum, options.ignore_index, options.label_smoothing),
      rows.numel()};
  if (options.z_loss != 0) {
    result.sum = result.sum + options.z_loss * used.index_select(0, rows).logsumexp(1).square().sum();
  }
  if (options.token_log_probabilities) {
    result.token_log_probabilities =
        at::cross_entropy_loss(used.detach(), targets, {}, at::Reduction::None, options.ignore_index).neg();
  }
  return result;
}

/// Sum over the rows of logits [..., columns] of the loss that the options describe for their label (int64 [...]), in
/// one pass over the logits and one for the gradient by ilme::kernels where the target is linked and has a kernel for
/// their device and dtype (CPU: float32, bf16, fp16); composed of ATen operations otherwise. First derivatives only.
///
/// The backward writes the gradient over the logits when nothing else holds their memory by then and the graph is not
/// retained: pass them as a temporary (`cross_entropy(head(hidden), labels)`), and a second matrix of that size is
/// never made. A variable of the caller that still holds the logits, or a view of them, keeps them as they are.
///
/// No counted row: sum 0, gradient 0, tokens 0. Throws c10::IndexError for a label outside the vocabulary,
/// c10::ValueError for shapes that do not fit and options out of range.
inline LossSum cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                             const CrossEntropyOptions& options = {}) {
  detail::check_logits(logits, labels);
  const std::int64_t vocabulary = detail::check_options(options, logits.size(-1), "ilme::ops::cross_entropy");
  const at::Tensor targets = labels.flatten().contiguous();
  const std::int64_t tokens =
      detail::counted_rows(targets, vocabulary, options.ignore_index, "ilme::ops::cross_entropy").numel();
  const auto outputs = detail::CrossEntropyFunction::apply(logits, targets, options, vocabulary);
  return {outputs[0].sum(), tokens, options.token_log_probabilities ? outputs[1] : at::Tensor()};
}

}  // namespace ilme::ops
