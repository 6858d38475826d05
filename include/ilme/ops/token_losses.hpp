/// The loss of every token by itself, for evaluation: no gradient, and never more logits than a chunk.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/ops/cross_entropy.hpp>

namespace ilme::ops {

/// -log softmax(hidden @ weight^T)[label] for each row of hidden [..., hidden_size], weight [vocabulary, hidden_size]
/// of the same dtype, labels int64 of hidden's leading shape. Returns float32 [rows] (float64 for float64), 0 where the
/// label is kIgnoreIndex; such rows are left out before the matrix product. Logits are rounded to the dtype of hidden,
/// as Transformers rounds them.
/// Rows of the weight from `vocabulary_size` (0: none) on are padding and take no part. Throws as linear_cross_entropy
/// does.
inline at::Tensor token_losses(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                               std::int64_t vocabulary_size = 0, std::int64_t chunk_bytes = std::int64_t{32} << 20) {
  const std::int64_t vocabulary = detail::check_head(hidden, weight, labels, vocabulary_size);
  const c10::NoGradGuard no_gradient;
  const at::Tensor flat = hidden.flatten(0, -2), targets = labels.flatten(),
                   weight_t = weight.narrow(0, 0, vocabulary).t();
  const at::Tensor rows = detail::counted_rows(targets, vocabulary);
  const at::ScalarType precise = detail::accumulate_type(hidden);
  at::Tensor losses = at::zeros({targets.numel()}, hidden.options().dtype(precise));
  const std::int64_t chunk = detail::chunk_rows(vocabulary, chunk_bytes);
  for (std::int64_t begin = 0; begin < rows.numel(); begin += chunk) {
    const at::Tensor selected = rows.narrow(0, begin, std::min(chunk, rows.numel() - begin));
    at::Tensor logits = at::mm(flat.index_select(0, selected), weight_t).to(precise);
    const at::Tensor chosen = logits.gather(1, targets.index_select(0, selected).unsqueeze(1));
    const at::Tensor largest = logits.amax(1, /*keepdim=*/true);
    logits.sub_(largest).exp_();  // in place: half the time of logsumexp
    losses.index_copy_(0, selected, (logits.sum(1, /*keepdim=*/true).log_() + largest - chosen).squeeze(1));
  }
  return losses;
}

}  // namespace ilme::ops
