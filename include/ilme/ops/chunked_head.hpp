/// The engine of the losses that are fused with a language model's head: logits exist for one chunk of rows at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

#include <ilme/ops/cross_entropy_rows.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/matrix_product.hpp>

namespace ilme::ops::detail {

/// Hidden states [all, hidden_size], the head's weight [columns, hidden_size] of the same dtype, of which the first
/// `vocabulary` rows take part, and the rows whose label counts: the others are left out before any matrix product.
struct Head {
  at::Tensor hidden, weight;
  at::Tensor labels;  // int64 [all], contiguous
  at::Tensor rows;    // int64 [counted], ascending
  std::int64_t vocabulary;

  std::int64_t counted() const { return rows.numel(); }
  /// The part of `values` [all, ...] that counted rows [begin, begin + count) stand for; a view when all rows count.
  at::Tensor select(const at::Tensor& values, std::int64_t begin, std::int64_t count) const {
    if (counted() == values.size(0)) return values.narrow(0, begin, count);
    return values.index_select(0, rows.narrow(0, begin, count));
  }
  /// Spreads values of the counted rows [counted] over all rows, 0 in the others.
  at::Tensor spread(const at::Tensor& values) const {
    if (counted() == hidden.size(0)) return values;
    return at::zeros({hidden.size(0)}, values.options()).index_copy_(0, rows, values);
  }
};

/// Checks what every operation with a head takes.
inline Head make_head(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                      const CrossEntropyOptions& options, const char* name) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && hidden.dim() >= 1 && hidden.size(-1) == weight.size(1), name, ": hidden ",
                    hidden.sizes(), " does not fit the weight ", weight.sizes());
  TORCH_CHECK_VALUE(labels.numel() * hidden.size(-1) == hidden.numel(), name, ": labels ", labels.sizes(),
                    " do not fit hidden ", hidden.sizes());
  TORCH_CHECK_VALUE(hidden.scalar_type() == weight.scalar_type(), name, ": hidden is ", hidden.scalar_type(),
                    ", the weight ", weight.scalar_type());
  const std::int64_t vocabulary = check_options(options, weight.size(0), name);
  const at::Tensor targets = labels.flatten().contiguous();
  return {hidden.reshape({labels.numel(), hidden.size(-1)}), weight, targets,
          counted_rows(targets, vocabulary, options.ignore_index, name), vocabulary};
}

/// Rows of a chunk: as many as `chunk_bytes` of logits hold, but not more than 1,024 (or 4M logits, for a small
/// vocabulary), beyond which a matrix product gets no faster; shared evenly, in multiples of 16, so that no short chunk
/// is left at the end.
inline std::int64_t chunk_rows(std::int64_t counted, std::int64_t logit_bytes_per_row, std::int64_t vocabulary,
                               std::int64_t chunk_bytes) {
  const std::int64_t most = std::max<std::int64_t>(1024, (std::int64_t{1} << 22) / vocabulary);
  const std::int64_t largest = std::clamp<std::int64_t>(chunk_bytes / logit_bytes_per_row, 16, most) / 16 * 16;
  const std::int64_t chunks = std::max<std::int64_t>(1, (counted + largest - 1) / largest);
  return std::min(largest, ((counted + chunks - 1) / chunks + 15) / 16 * 16);
}

/// Where the gradients of a head are summed; undefined ones are not wanted.
struct HeadGradients {
  at::Tensor hidden;          // of hidden's shape and dtype
  at::Tensor weight;          // of the weight's shape, accumulate_type
  bool weight_empty = false;  // the contents of `weight` are undefined yet

  HeadGradients(const Head& head, bool want_hidden, GradientReceiver::Accumulator weight_sum)
      : weight(std::move(weight_sum.sum)), weight_empty(weight.defined() && weight_sum.empty) {
    if (want_hidden) {
      hidden = head.counted() == head.hidden.size(0) ? at::empty_like(head.hidden, at::MemoryFormat::Contiguous)
                                                     : at::zeros_like(head.hidden, at::MemoryFormat::Contiguous);
    }
    if (!weight_empty) return;
    const std::int64_t used = head.counted() > 0 ? head.vocabulary : 0;
    weight.narrow(0, used, weight.size(0) - used).zero_();
    if (used == 0) weight_empty = false;
  }

  /// Adds what the gradient of the logits of counted rows [begin, begin + count) and their hidden states x give.
  void add(const Head& head, const at::Tensor& d_logits, const at::Tensor& x, std::int64_t begin) {
    const at::Tensor used = head.weight.narrow(0, 0, head.vocabulary);
    const std::int64_t count = x.size(0);
    if (hidden.defined() && head.counted() == hidden.size(0)) {
      product_into(hidden.narrow(0, begin, count), d_logits, used);
    } else if (hidden.defined()) {
      hidden.index_copy_(0, head.rows.narrow(0, begin, count), product(d_logits, used));
    }
    if (weight.defined()) {
      at::Tensor sum = weight.narrow(0, 0, head.vocabulary);
      add_product(sum, d_logits, x, std::exchange(weight_empty, false));
    }
  }
};

/// A sum of the weight's own for its gradient, or none.
inline GradientReceiver::Accumulator weight_sum(const at::Tensor& weight, bool wanted) {
  if (!wanted) return {at::Tensor(), false};
  return {at::empty(weight.sizes(), weight.options().dtype(accumulate_type(weight))), true};
}

/// Calls step(logits, begin) for chunk after chunk of the counted rows: logits [count, vocabulary] of hidden's dtype,
/// contiguous, of rows [begin, begin + count). Where a gradient is wanted, the step leaves that of the logits in their
/// place. The memory is one chunk, that of its hidden states, and the gradients.
template <class Step>
void for_each_chunk(const Head& head, std::int64_t chunk_bytes, HeadGradients& gradients, Step&& step) {
  const std::int64_t counted = head.counted();
  if (counted == 0) return;
  const std::int64_t size = chunk_rows(counted, head.vocabulary * static_cast<std::int64_t>(head.hidden.itemsize()),
                                       head.vocabulary, chunk_bytes);
  const at::Tensor weight_t = head.weight.narrow(0, 0, head.vocabulary).t();
  const at::Tensor buffer = at::empty({std::min(size, counted), head.vocabulary}, head.hidden.options());
  for (std::int64_t begin = 0; begin < counted; begin += size) {
    const std::int64_t count = std::min(size, counted - begin);
    const at::Tensor x = head.select(head.hidden, begin, count);
    const at::Tensor logits = buffer.narrow(0, 0, count);
    product_into(logits, x, weight_t);
    step(logits, begin);
    gradients.add(head, logits, x, begin);
  }
}

/// Gives the sum of a weight's gradient to its receiver, or else to autograd in the weight's dtype.
inline at::Tensor hand_over(const at::Tensor& weight, at::Tensor gradient) {
  if (!gradient.defined()) return gradient;
  if (GradientReceiver* receiver = gradient_receiver(weight)) {
    receiver->take(std::move(gradient));
    return {};
  }
  return gradient.to(weight.scalar_type());
}

}  // namespace ilme::ops::detail
