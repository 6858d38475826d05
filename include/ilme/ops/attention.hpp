/// Causal attention over packed documents, without a dense mask and without work across documents.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace ilme::ops {

namespace detail {

/// Causal attention of `count` documents of equal length that lie one after another: q [count * length, heads,
/// head_dim], k and v [count * length, kv_heads, head_dim].
inline at::Tensor attention_equal_lengths(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          std::int64_t count) {
  const auto split = [count](const at::Tensor& x) {
    return x.view({count, x.size(0) / count, x.size(1), x.size(2)}).transpose(1, 2);
  };
  const bool grouped = q.size(1) != k.size(1);
  const at::Tensor out = at::scaled_dot_product_attention(split(q), split(k), split(v), /*attn_mask=*/{},
                                                          /*dropout_p=*/0.0, /*is_causal=*/true,
                                                          /*scale=*/std::nullopt, /*enable_gqa=*/grouped);
  return out.transpose(1, 2).reshape(q.sizes());
}

}  // namespace detail

/// Attention in which a token sees its own document up to itself. q [tokens, heads, head_dim]; k, v [tokens, kv_heads,
/// head_dim] with kv_heads dividing heads (grouped-query attention); `sequence_offsets` 0 = o0 < o1 < ... = tokens
/// delimit the documents, as cu_seqlens does in FlashAttention. Returns [tokens, heads, head_dim]. Neighbouring
/// documents of equal length share one call.
inline at::Tensor attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const std::vector<std::int64_t>& sequence_offsets) {
  TORCH_CHECK_VALUE(
      sequence_offsets.size() >= 2 && sequence_offsets.front() == 0 && sequence_offsets.back() == q.size(0),
      "ilme::ops::attention: sequence_offsets must run from 0 to ", q.size(0), " tokens");
  std::vector<std::int64_t> tokens, counts;  // one entry a run of equal lengths
  std::int64_t previous_length = -1;
  for (std::size_t i = 1; i < sequence_offsets.size(); ++i) {
    const std::int64_t length = sequence_offsets[i] - sequence_offsets[i - 1];
    TORCH_CHECK_VALUE(length > 0, "ilme::ops::attention: sequence_offsets must ascend");
    if (length != previous_length) {
      tokens.push_back(0);
      counts.push_back(0);
    }
    tokens.back() += length;
    ++counts.back();
    previous_length = length;
  }
  if (tokens.size() == 1) return detail::attention_equal_lengths(q, k, v, counts[0]);
  // split_with_sizes, not narrow: its backward is one cat, not one full-sized zero tensor a document.
  const auto qs = q.split_with_sizes(tokens), ks = k.split_with_sizes(tokens), vs = v.split_with_sizes(tokens);
  std::vector<at::Tensor> outputs;
  outputs.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    outputs.push_back(detail::attention_equal_lengths(qs[i], ks[i], vs[i], counts[i]));
  }
  return at::cat(outputs);
}

}  // namespace ilme::ops
