/// Cross-entropy of a language-model head: the plain path over full logits, and the fused one that never holds them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/ops/gradient_receiver.hpp>

namespace ilme::ops {

inline constexpr std::int64_t kIgnoreIndex = -100;

/// A sum of token losses (float32 scalar, differentiable; float64 for float64 input) and the number of tokens in it:
/// divide by the tokens of the whole optimizer step, over all micro-batches and ranks, for the mean.
struct LossSum {
  at::Tensor sum;
  std::int64_t tokens = 0;
};

namespace detail {

inline at::ScalarType accumulate_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Checks what goes in; gives the number of rows of the head that take part: `vocabulary_size`, all of them for 0.
inline std::int64_t check_head(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                               std::int64_t vocabulary_size) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && hidden.size(-1) == weight.size(1), "ilme::ops::linear_cross_entropy: hidden ",
                    hidden.sizes(), " does not fit the weight ", weight.sizes());
  TORCH_CHECK_VALUE(labels.numel() * hidden.size(-1) == hidden.numel(), "ilme::ops::linear_cross_entropy: labels ",
                    labels.sizes(), " do not fit hidden ", hidden.sizes());
  TORCH_CHECK_VALUE(hidden.scalar_type() == weight.scalar_type(), "ilme::ops::linear_cross_entropy: hidden is ",
                    hidden.scalar_type(), ", the weight ", weight.scalar_type());
  TORCH_CHECK_VALUE(vocabulary_size >= 0 && vocabulary_size <= weight.size(0),
                    "ilme::ops::linear_cross_entropy: vocabulary_size is ", vocabulary_size, ", the weight has ",
                    weight.size(0), " rows");
  return vocabulary_size > 0 ? vocabulary_size : weight.size(0);
}

/// The rows whose label counts, and their labels. Labels outside the vocabulary are an error, not undefined behaviour.
inline at::Tensor counted_rows(const at::Tensor& labels, std::int64_t vocabulary) {
  const at::Tensor rows = labels.ne(kIgnoreIndex).nonzero().flatten();
  if (rows.numel() == 0) return rows;
  const at::Tensor counted = labels.index_select(0, rows);
  const auto lowest = counted.min().item<std::int64_t>(), highest = counted.max().item<std::int64_t>();
  TORCH_CHECK_INDEX(lowest >= 0 && highest < vocabulary, "ilme::ops::linear_cross_entropy: label ",
                    lowest < 0 ? lowest : highest, " is outside the vocabulary of ", vocabulary);
  return rows;
}

}  // namespace detail

/// The twin of the fused form below: hidden @ weight^T as a whole, then log-softmax in float32 (float64 for float64).
inline LossSum linear_cross_entropy_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                              const at::Tensor& labels, std::int64_t vocabulary_size = 0) {
  const std::int64_t vocabulary = detail::check_head(hidden, weight, labels, vocabulary_size);
  const at::Tensor targets = labels.flatten();
  const std::int64_t tokens = detail::counted_rows(targets, vocabulary).numel();
  const at::Tensor used = weight.narrow(0, 0, vocabulary);
  const at::Tensor logits = at::matmul(hidden.flatten(0, -2), used.t()).to(detail::accumulate_type(hidden));
  return {at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kIgnoreIndex), tokens};
}

struct LinearCrossEntropyOptions {
  /// Bytes that a chunk's logits (in float32) may take; decides how many rows are computed at once.
  std::int64_t chunk_bytes = std::int64_t{256} << 20;
  /// Rows of the weight that stand for tokens, 0: all. Those past them (padding) take no part in the softmax, as if
  /// their logits were minus infinity, and their gradient is zero.
  std::int64_t vocabulary_size = 0;
};

namespace detail {

/// Rows of a chunk, a multiple of 16. Beyond 1,024 rows (or 4M logits, for a small vocabulary) a matrix product gets no
/// faster, and temporaries of a fixed size are reused from step to step.
inline std::int64_t chunk_rows(std::int64_t vocabulary, std::int64_t chunk_bytes) {
  const std::int64_t most = std::max<std::int64_t>(1024, (std::int64_t{1} << 22) / vocabulary);
  return std::clamp<std::int64_t>(chunk_bytes / (vocabulary * 4), 16, most) / 16 * 16;
}

/// Forward computes the loss and, chunk by chunk, both gradients: dlogits = softmax(logits) - onehot(label) is written
/// over the logits and used at once, so that the memory is one chunk and the gradients (the idea of Liger-Kernel's
/// FusedLinearCrossEntropy, Hsu et al. 2024). The weight gradient is summed over chunks in float32. Backward scales.
struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels, const at::Tensor& rows,
                            std::int64_t vocabulary, bool hidden_gradient, bool weight_gradient,
                            std::int64_t chunk_bytes) {
    const at::ScalarType precise = accumulate_type(hidden);
    const std::int64_t count = rows.numel();
    const std::int64_t chunk = chunk_rows(vocabulary, chunk_bytes);
    at::Tensor loss = at::zeros({}, hidden.options().dtype(precise));
    const at::Tensor used = weight.narrow(0, 0, vocabulary);
    at::Tensor d_hidden, d_weight, d_used;
    if (hidden_gradient) d_hidden = at::zeros_like(hidden, at::MemoryFormat::Contiguous);
    if (weight_gradient) {
      d_weight = at::zeros(weight.sizes(), weight.options().dtype(precise));
      d_used = d_weight.narrow(0, 0, vocabulary);
    }
    const at::Tensor weight_t = used.t();
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
      const at::Tensor selected = rows.narrow(0, begin, std::min(chunk, count - begin));
      const at::Tensor x = hidden.index_select(0, selected);
      const at::Tensor target = labels.index_select(0, selected).unsqueeze(1);
      at::Tensor logits = at::mm(x, weight_t).to(precise);
      const at::Tensor log_normalizer = logits.logsumexp(1, /*keepdim=*/true);
      loss.add_((log_normalizer - logits.gather(1, target)).sum());
      if (!hidden_gradient && !weight_gradient) continue;
      logits.sub_(log_normalizer).exp_();
      logits.scatter_add_(1, target, at::full({}, -1.0, logits.options()).expand_as(target));
      const at::Tensor d_logits = logits.to(hidden.scalar_type());
      if (hidden_gradient) d_hidden.index_copy_(0, selected, at::mm(d_logits, used));
      if (weight_gradient) {
        if (hidden.scalar_type() == precise) {
          d_used.addmm_(d_logits.t(), x);
        } else {
          d_used.add_(at::mm(d_logits.t(), x));
        }
      }
    }
    context->saved_data["weight"] = weight;
    context->saved_data["d_hidden"] = d_hidden;
    context->saved_data["d_weight"] = d_weight;
    return loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(context->saved_data.count("weight") == 1,
                "ilme::ops::linear_cross_entropy: its backward runs once; its gradients are freed after that");
    at::Tensor d_hidden = context->saved_data["d_hidden"].toTensor();
    at::Tensor d_weight = context->saved_data["d_weight"].toTensor();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    context->saved_data.clear();
    // The trainer differentiates the sum itself: nothing to scale then.
    if (!gradients[0].is_cpu() || gradients[0].item<double>() != 1.0) {
      if (d_hidden.defined()) d_hidden.mul_(gradients[0]);
      if (d_weight.defined()) d_weight.mul_(gradients[0]);
    }
    if (d_weight.defined()) {
      if (GradientReceiver* receiver = gradient_receiver(weight)) {
        receiver->take(std::move(d_weight));
        d_weight = at::Tensor();
      } else {
        d_weight = d_weight.to(weight.scalar_type());
      }
    }
    return {d_hidden, d_weight, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace detail

/// Sum over the rows of hidden [..., hidden_size] whose label (int64, the same leading shape) is not kIgnoreIndex of
/// -log softmax(hidden @ weight^T)[label], weight [vocabulary, hidden_size] of the same dtype. Never holds more logits
/// than options.chunk_bytes; ignored rows are left out before the matrix product. No counted row: sum 0, gradients 0,
/// tokens 0. A weight that has a
/// gradient receiver gets its gradient there in float32. Throws c10::IndexError for a label outside the vocabulary,
/// c10::ValueError for shapes that do not fit.
inline LossSum linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                    const LinearCrossEntropyOptions& options = {}) {
  const std::int64_t vocabulary = detail::check_head(hidden, weight, labels, options.vocabulary_size);
  const at::Tensor targets = labels.flatten();
  const at::Tensor rows = detail::counted_rows(targets, vocabulary);
  const bool recording = c10::GradMode::is_enabled();
  const at::Tensor sum = detail::LinearCrossEntropyFunction::apply(
      hidden.flatten(0, -2), weight, targets, rows, vocabulary, recording && hidden.requires_grad(),
      recording && weight.requires_grad(), options.chunk_bytes);
  return {sum, rows.numel()};
}

}  // namespace ilme::ops
