/// Causal attention over packed documents, without a dense mask and without work across documents: the plain path and
/// the fused kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

namespace detail {

inline void check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& sequence_offsets) {
  TORCH_CHECK_VALUE(q.dim() == 3 && k.sizes() == v.sizes() && k.dim() == 3 && k.size(0) == q.size(0) &&
                        k.size(2) == q.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0,
                    "ilme::ops::attention: q ", q.sizes(), ", k ", k.sizes(), " and v ", v.sizes(),
                    " do not fit each other");
  TORCH_CHECK_VALUE(
      sequence_offsets.size() >= 2 && sequence_offsets.front() == 0 && sequence_offsets.back() == q.size(0),
      "ilme::ops::attention: sequence_offsets must run from 0 to ", q.size(0), " tokens");
  for (std::size_t i = 1; i < sequence_offsets.size(); ++i) {
    TORCH_CHECK_VALUE(sequence_offsets[i] > sequence_offsets[i - 1],
                      "ilme::ops::attention: sequence_offsets must ascend");
  }
}

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
  detail::check_attention(q, k, v, sequence_offsets);
  std::vector<std::int64_t> tokens, counts;  // one entry a run of equal lengths
  std::int64_t previous_length = -1;
  for (std::size_t i = 1; i < sequence_offsets.size(); ++i) {
    const std::int64_t length = sequence_offsets[i] - sequence_offsets[i - 1];
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

namespace detail {

/// Saves q, k, v and one float32 a token and head.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static kernels::PackedDocuments packed(const at::Tensor& q, const at::Tensor& k,
                                         const std::vector<std::int64_t>& offsets) {
    return {offsets.data(),
            static_cast<std::int64_t>(offsets.size()) - 1,
            q.size(1),
            k.size(1),
            q.size(2),
            static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.size(2)))),
            *kernel_dtype(q.scalar_type())};
  }

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<std::int64_t>& offsets) {
    const at::Tensor queries = q.contiguous(), keys = k.contiguous(), values = v.contiguous();
    at::Tensor out = at::empty_like(queries);
    at::Tensor log_sum = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    check_kernel(kernels::table().cpu.attention_forward(
        {packed(queries, keys, offsets), queries.const_data_ptr(), keys.const_data_ptr(), values.const_data_ptr(),
         out.mutable_data_ptr(), log_sum.mutable_data_ptr<float>(), /*stream=*/nullptr}));
    context->save_for_backward({queries, keys, values, log_sum});
    context->saved_data["offsets"] = offsets;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &log_sum = saved[3];
    const std::vector<std::int64_t> offsets = context->saved_data["offsets"].toIntVector();
    const at::Tensor dout = gradients[0].contiguous();
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    check_kernel(kernels::table().cpu.attention_backward(
        {packed(q, k, offsets), dout.const_data_ptr(), q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(),
         log_sum.const_data_ptr<float>(), dq.mutable_data_ptr(), dk.mutable_data_ptr(), dv.mutable_data_ptr(),
         /*stream=*/nullptr}));
    return {dq, dk, dv, {}};
  }
};

}  // namespace detail

/// As attention_reference, by ilme::kernels where the target is linked and has a kernel for the device and dtype (CPU:
/// float32, bf16, fp16): one call for all documents, softmax in float32, no matrix of weights kept for the backward.
/// First derivatives only.
inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& sequence_offsets) {
  const bool kernel = q.device().is_cpu() && q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type() &&
                      detail::kernel_dtype(q.scalar_type()) && kernels::table().cpu.attention_forward != nullptr;
  if (!kernel) return attention_reference(q, k, v, sequence_offsets);
  detail::check_attention(q, k, v, sequence_offsets);
  return detail::AttentionFunction::apply(q, k, v, sequence_offsets);
}

}  // namespace ilme::ops
