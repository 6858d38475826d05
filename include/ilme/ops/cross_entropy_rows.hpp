/// Losses and gradients of rows of logits: what cross_entropy and the losses that are fused with the head share.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

inline constexpr std::int64_t kIgnoreIndex = -100;

/// What a token's loss is made of. With c(x) = soft_cap * tanh(x / soft_cap) of its logits x (x itself for soft_cap 0),
/// log Z = log sum exp(c(x)) and e = label_smoothing, the loss for the label y is
/// (1 - e) (log Z - c(x_y)) + e (log Z - mean c(x)) + z_loss (log Z)^2.
struct CrossEntropyOptions {
  /// Bytes that the logits of a chunk may take, in the dtype of the hidden states, where they are computed in chunks.
  std::int64_t chunk_bytes = std::int64_t{256} << 20;
  /// Rows of the head (columns of the logits) that stand for tokens, 0: all. Those past them (padding) take no part, as
  /// if their logits were minus infinity; their gradient is zero.
  std::int64_t vocabulary_size = 0;
  std::int64_t ignore_index = kIgnoreIndex;  ///< rows with this label have loss 0 and gradient 0
  double label_smoothing = 0.0;              ///< in [0, 1], as torch's cross_entropy defines it
  double z_loss = 0.0;                       ///< keeps log Z near 0 (PaLM, Chowdhery et al. 2022: 1e-4)
  double soft_cap = 0.0;                     ///< bounds the logits (Gemma 2: 30); 0: none
  bool token_log_probabilities = false;      ///< LossSum::token_log_probabilities is wanted
};

namespace detail {

/// The type of losses and of sums of gradients: float32, float64 for float64.
inline at::ScalarType accumulate_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Checks the options; gives the number of columns that take part.
inline std::int64_t check_options(const CrossEntropyOptions& options, std::int64_t columns, const char* name) {
  TORCH_CHECK_VALUE(options.vocabulary_size >= 0 && options.vocabulary_size <= columns, name, ": vocabulary_size is ",
                    options.vocabulary_size, ", there are ", columns, " rows of the weight or columns of the logits");
  TORCH_CHECK_VALUE(options.label_smoothing >= 0 && options.label_smoothing <= 1, name, ": label_smoothing is ",
                    options.label_smoothing, ", expected 0 to 1");
  TORCH_CHECK_VALUE(options.soft_cap >= 0, name, ": soft_cap is ", options.soft_cap, ", expected 0 (none) or more");
  TORCH_CHECK_VALUE(options.chunk_bytes > 0, name, ": chunk_bytes is ", options.chunk_bytes, ", expected 1 or more");
  return options.vocabulary_size > 0 ? options.vocabulary_size : columns;
}

/// Labels outside the vocabulary are an error, not undefined behaviour.
inline void check_labels(const at::Tensor& counted, std::int64_t vocabulary, const char* name) {
  if (counted.numel() == 0) return;
  const auto [low, high] = at::aminmax(counted);
  const auto lowest = low.item<std::int64_t>(), highest = high.item<std::int64_t>();
  TORCH_CHECK_INDEX(lowest >= 0 && highest < vocabulary, name, ": label ", lowest < 0 ? lowest : highest,
                    " is outside the vocabulary of ", vocabulary);
}

/// The rows whose label counts, [tokens]; int64 labels [rows].
inline at::Tensor counted_rows(const at::Tensor& labels, std::int64_t vocabulary, std::int64_t ignore_index,
                               const char* name) {
  TORCH_CHECK_VALUE(labels.scalar_type() == at::kLong, name, ": labels are ", labels.scalar_type(), ", expected Long");
  const at::Tensor rows = labels.ne(ignore_index).nonzero().flatten();
  check_labels(rows.numel() == labels.numel() ? labels : labels.index_select(0, rows), vocabulary, name);
  return rows;
}

/// What the forward writes, each [rows] of accumulate_type; an undefined one is not wanted.
struct RowOutputs {
  at::Tensor loss, log_normalizer, log_probability;
};

inline bool cross_entropy_kernel(const at::Tensor& logits) {
  return logits.device().is_cpu() && kernel_dtype(logits.scalar_type()) &&
         kernels::table().cpu.cross_entropy_forward != nullptr;
}

inline kernels::CrossEntropy kernel_arguments(const at::Tensor& logits, const at::Tensor& labels,
                                              const CrossEntropyOptions& options, std::int64_t vocabulary,
                                              const at::Tensor& scales, const at::Tensor& gradient) {
  return {.logits = logits.const_data_ptr(),
          .labels = labels.const_data_ptr<std::int64_t>(),
          .loss = nullptr,
          .log_normalizer = nullptr,
          .log_probability = nullptr,
          .gradient = gradient.defined() ? gradient.mutable_data_ptr() : nullptr,
          .scales = scales.defined() ? scales.const_data_ptr<float>() : nullptr,
          .rows = logits.size(0),
          .vocabulary = vocabulary,
          .stride = logits.size(1),
          .ignore_index = options.ignore_index,
          .label_smoothing = static_cast<float>(options.label_smoothing),
          .z_loss = static_cast<float>(options.z_loss),
          .soft_cap = static_cast<float>(options.soft_cap),
          .dtype = *kernel_dtype(logits.scalar_type()),
          .stream = nullptr};
}

/// c(x) of the columns that take part.
inline at::Tensor capped_logits(const at::Tensor& logits, const CrossEntropyOptions& options, std::int64_t vocabulary) {
  const at::Tensor used = logits.narrow(-1, 0, vocabulary).to(accumulate_type(logits));
  return options.soft_cap > 0 ? (used / options.soft_cap).tanh_().mul_(options.soft_cap) : used;
}

/// Writes over `gradient` (it may be the logits) the gradient of sum(scales * loss), scales [rows] or undefined for 1,
/// from the log_normalizer that the forward wrote. All contiguous: logits [rows, columns], labels int64 [rows].
inline void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& log_normalizer,
                                   const at::Tensor& scales, const CrossEntropyOptions& options,
                                   std::int64_t vocabulary, at::Tensor gradient) {
  if (labels.numel() == 0) return;
  if (cross_entropy_kernel(logits)) {
    kernels::CrossEntropy arguments = kernel_arguments(logits, labels, options, vocabulary, scales, gradient);
    arguments.log_normalizer = const_cast<float*>(log_normalizer.const_data_ptr<float>());
    return check_kernel(kernels::table().cpu.cross_entropy_backward(arguments));
  }
  const at::Tensor capped = capped_logits(logits, options, vocabulary), counted = labels.ne(options.ignore_index);
  const at::Tensor scale = (scales.defined() ? scales * counted : counted.to(capped.scalar_type())).unsqueeze(1);
  const at::Tensor normalizer = log_normalizer.unsqueeze(1);
  at::Tensor part = (capped - normalizer).exp_().mul_(scale * (1 + 2 * options.z_loss * normalizer));
  if (options.label_smoothing > 0) part.sub_(scale * (options.label_smoothing / static_cast<double>(vocabulary)));
  part.scatter_add_(1, labels.masked_fill(counted.logical_not(), 0).unsqueeze(1),
                    scale * (options.label_smoothing - 1));
  if (options.soft_cap > 0) part.mul_(1 - (capped / options.soft_cap).pow_(2));
  part.masked_fill_(counted.logical_not().unsqueeze(1), 0);  // a NaN in an ignored row stays out
  gradient.narrow(1, 0, vocabulary).copy_(part);
  if (vocabulary < gradient.size(1)) gradient.narrow(1, vocabulary, gradient.size(1) - vocabulary).zero_();
}

/// Writes `out` (log_normalizer is always wanted) and, where it is defined, over `gradient` (it may be the logits) the
/// gradient of the sum of the losses. Tensors as in cross_entropy_backward.
inline void cross_entropy_forward(const at::Tensor& logits, const at::Tensor& labels,
                                  const CrossEntropyOptions& options, std::int64_t vocabulary, RowOutputs out,
                                  const at::Tensor& gradient = {}) {
  if (labels.numel() == 0) return;
  if (cross_entropy_kernel(logits)) {
    kernels::CrossEntropy arguments = kernel_arguments(logits, labels, options, vocabulary, {}, gradient);
    arguments.log_normalizer = out.log_normalizer.mutable_data_ptr<float>();
    if (out.loss.defined()) arguments.loss = out.loss.mutable_data_ptr<float>();
    if (out.log_probability.defined()) arguments.log_probability = out.log_probability.mutable_data_ptr<float>();
    return check_kernel(kernels::table().cpu.cross_entropy_forward(arguments));
  }
  const at::Tensor capped = capped_logits(logits, options, vocabulary), ignored = labels.eq(options.ignore_index);
  const at::Tensor largest = capped.amax(1, /*keepdim=*/true);
  const at::Tensor normalizer = (capped - largest).exp_().sum(1).log_().add_(largest.squeeze(1));
  const at::Tensor chosen = capped.gather(1, labels.masked_fill(ignored, 0).unsqueeze(1)).squeeze(1);
  out.log_normalizer.copy_(normalizer.masked_fill(ignored, 0));
  if (out.log_probability.defined()) out.log_probability.copy_((chosen - normalizer).masked_fill_(ignored, 0));
  if (out.loss.defined()) {
    at::Tensor loss = normalizer - chosen;
    if (options.label_smoothing > 0) loss.add_(chosen - capped.mean(1), options.label_smoothing);
    if (options.z_loss != 0) loss.add_(normalizer.square(), options.z_loss);
    out.loss.copy_(loss.masked_fill_(ignored, 0));
  }
  if (gradient.defined()) {
    cross_entropy_backward(logits, labels, out.log_normalizer, {}, options, vocabulary, gradient);
  }
}

}  // namespace detail

}  // namespace ilme::ops
