/// The token embedding: the plain path, and one whose gradient goes straight to where the weight's gradients are
/// summed.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

/// Rows of weight [vocabulary, size] for ids int64 of any shape: [..., size]. The gradient is a dense matrix. The twin
/// of embedding below.
inline at::Tensor embedding_reference(const at::Tensor& weight, const at::Tensor& ids) {
  return at::embedding(weight, ids);
}

namespace detail {

/// sum[ids[i]] += gradient[i] in ascending order of i, for contiguous sum [vocabulary, size] and ids, gradient [...,
/// size].
inline void add_rows(at::Tensor& sum, const at::Tensor& ids, const at::Tensor& gradient) {
  const at::Tensor rows = gradient.contiguous().view({ids.numel(), sum.size(1)});
  const auto type = kernel_dtype(rows.scalar_type());
  const auto kernel = kernels::table().cpu.embedding_backward;
  if (kernel != nullptr && type && rows.is_cpu() && sum.is_cpu() && sum.scalar_type() == at::kFloat) {
    check_kernel(kernel({rows.const_data_ptr(), ids.const_data_ptr<std::int64_t>(), sum.mutable_data_ptr<float>(),
                         ids.numel(), sum.size(1), *type, /*stream=*/nullptr}));
  } else {
    sum.index_add_(0, ids.flatten(), rows.to(sum.scalar_type()));
  }
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids) {
    context->save_for_backward({ids.contiguous()});
    context->saved_data["weight"] = weight;  // an optimizer may have stepped it when the backward comes here
    return embedding_reference(weight, ids);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor weight = context->saved_data["weight"].toTensor(), ids = context->get_saved_variables()[0];
    GradientReceiver* const receiver = gradient_receiver(weight);
    if (receiver == nullptr) {
      return {at::embedding_dense_backward(gradients[0], ids, weight.size(0), /*padding_idx=*/-1,
                                           /*scale_grad_by_freq=*/false),
              {}};
    }
    auto [sum, empty] = receiver->accumulator();
    if (empty) sum.zero_();
    add_rows(sum, ids, gradients[0]);
    return {{}, {}};
  }
};

}  // namespace detail

/// As embedding_reference; where the weight has a GradientReceiver, the backward adds the rows into its sum (in
/// float32, by ilme::kernels on the CPU; repeated ids in a fixed order) and makes no matrix of the weight's size: with
/// tied embeddings the sum holds the head's gradient already. First derivatives only.
inline at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && ids.scalar_type() == at::kLong, "ilme::ops::embedding: weight ",
                    weight.sizes(), ", ids ", ids.sizes(), " of ", ids.scalar_type(),
                    "; expected a matrix and int64 ids");
  if (!c10::GradMode::is_enabled() || !weight.requires_grad()) return embedding_reference(weight, ids);
  return detail::EmbeddingFunction::apply(weight, ids);
}

}  // namespace ilme::ops
