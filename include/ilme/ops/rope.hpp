/// Rotary position embedding (Su et al. 2021, "RoFormer") in the half-split layout of Hugging Face's weights: the plain
/// path and the fused kernel.
#pragma once

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

namespace detail {

inline void check_rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin) {
  const bool tables = cos.dim() == 3 && cos.sizes() == sin.sizes() && cos.size(2) > 0 && cos.size(2) % 2 == 0;
  const auto fits = [&](const at::Tensor& x) {
    return x.dim() == 3 && x.size(0) == cos.size(0) && x.size(1) == cos.size(1) && x.size(2) % cos.size(2) == 0;
  };
  TORCH_CHECK_VALUE(tables && fits(q) && fits(k), "ilme::ops::rope: q ", q.sizes(), " and k ", k.sizes(),
                    " do not fit the tables ", cos.sizes(), " and ", sin.sizes());
}

/// [a, b] -> [-b, a] over the halves of the last dimension.
inline at::Tensor rotate_half(const at::Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

/// x * cos + rotate_half(x) * sin for every head of x.
inline at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t head_dim = cos.size(2);
  const at::Tensor heads = x.unflatten(2, {x.size(2) / head_dim, head_dim});
  const at::Tensor cosine = cos.unsqueeze(2).to(x.scalar_type()), sine = sin.unsqueeze(2).to(x.scalar_type());
  return (heads * cosine + rotate_half(heads) * sine).flatten(2);
}

}  // namespace detail

/// Rotates queries q [batch, sequence, heads * head_dim] and keys k [batch, sequence, kv_heads * head_dim] by the
/// angles whose cosines and sines are given as float32 [batch, sequence, head_dim] (the second half repeats the first):
/// x * cos
/// + rotate_half(x) * sin for every head x, as Transformers' LlamaAttention computes it, with the tables rounded to the
/// dtype. Differentiable in q and k. The twin of rope below.
inline std::pair<at::Tensor, at::Tensor> rope_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                                        const at::Tensor& sin) {
  detail::check_rope(q, k, cos, sin);
  return {detail::rotated(q, cos, sin), detail::rotated(k, cos, sin)};
}

namespace detail {

/// Rotates contiguous q and k into q_out and k_out, which may be they; either pair may be undefined. Contiguous tables.
inline void rope_tokens(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin,
                        const at::Tensor& q_out, const at::Tensor& k_out, bool backward) {
  const std::int64_t head_dim = cos.size(2);
  const auto input = [](const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; };
  const auto output = [](const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; };
  const auto heads = [&](const at::Tensor& x) { return x.defined() ? x.size(2) / head_dim : 0; };
  check_kernel(kernels::table().cpu.rope({input(q), input(k), output(q_out), output(k_out), cos.const_data_ptr<float>(),
                                          sin.const_data_ptr<float>(), cos.size(0) * cos.size(1), heads(q), heads(k),
                                          head_dim, backward, *kernel_dtype((q.defined() ? q : k).scalar_type()),
                                          /*stream=*/nullptr}));
}

/// Saves the tables alone.
struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin) {
    const at::Tensor cosine = cos.contiguous(), sine = sin.contiguous();
    context->save_for_backward({cosine, sine});
    context->set_materialize_grads(false);
    const at::Tensor rotated_q = at::empty(q.sizes(), q.options()), rotated_k = at::empty(k.sizes(), k.options());
    rope_tokens(q.contiguous(), k.contiguous(), cosine, sine, rotated_q, rotated_k, /*backward=*/false);
    return {rotated_q, rotated_k};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto space = [&](std::size_t i) {
      return context->needs_input_grad(i) && gradients[i].defined() ? gradient_space(gradients[i]) : at::Tensor();
    };
    const auto incoming = [&](std::size_t i, const at::Tensor& out) {
      return out.defined() ? gradients[i].contiguous() : at::Tensor();
    };
    const at::Tensor dq = space(0), dk = space(1);
    if (dq.defined() || dk.defined()) {
      rope_tokens(incoming(0, dq), incoming(1, dk), saved[0], saved[1], dq, dk, /*backward=*/true);
    }
    return {dq, dk, {}, {}};
  }
};

}  // namespace detail

/// As rope_reference, both in one pass by ilme::kernels where the target is linked (CPU: float32, bf16, fp16), in
/// float32 and rounded once; composed of ATen operations otherwise. Returns new tensors, so that q and k may be views.
/// The backward rotates by the opposite angles. First derivatives only.
inline std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                                              const at::Tensor& sin) {
  const bool kernel = kernels::table().cpu.rope != nullptr && detail::fits_cpu_kernel(q, k) &&
                      cos.scalar_type() == at::kFloat && sin.scalar_type() == at::kFloat && cos.device().is_cpu();
  if (!kernel) return rope_reference(q, k, cos, sin);
  detail::check_rope(q, k, cos, sin);
  if (c10::GradMode::is_enabled()) {
    const auto outputs = detail::RopeFunction::apply(q, k, cos, sin);
    return {outputs[0], outputs[1]};
  }
  std::pair<at::Tensor, at::Tensor> out{at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options())};
  detail::rope_tokens(q.contiguous(), k.contiguous(), cos.contiguous(), sin.contiguous(), out.first, out.second,
                      /*backward=*/false);
  return out;
}

}  // namespace ilme::ops
