/// Distillation of a teacher's distribution over the next token into a student's, fused with both heads: neither's
/// logits ever exist as a whole.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ilme/ops/chunked_head.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>

namespace ilme::ops {

/// A token's loss is cross_entropy_weight * (cross-entropy of its label) + (1 - cross_entropy_weight) * T^2 D, where D
/// compares p = softmax(student / T) with q = softmax(teacher / T), T = temperature (Hinton et al. 2015).
struct DistillationOptions {
  double temperature = 1.0;
  double cross_entropy_weight = 0.5;  ///< in [0, 1]
  /// D is sum p log(p / q), which makes the student pick some of the teacher's answers (Gu et al. 2023, "MiniLLM"),
  /// instead of sum q log(q / p), which makes it cover them all.
  bool reverse = false;
  /// chunk_bytes (for the logits of both), vocabulary_size, ignore_index; soft_cap bounds the logits of both. The other
  /// terms are 0.
  CrossEntropyOptions logits = {};
};

/// The sum of token losses, and without gradient the sums of their two parts, float32 scalars.
struct DistillationLoss : LossSum {
  at::Tensor cross_entropy, divergence;  // the latter is T^2 D
};

namespace detail {

struct Teacher {
  at::Tensor hidden, weight;  // [all, teacher's hidden_size], [vocabulary, teacher's hidden_size]
};

inline Teacher make_teacher(const Head& student, const at::Tensor& hidden, const at::Tensor& weight,
                            const DistillationOptions& options) {
  TORCH_CHECK_VALUE(
      weight.dim() == 2 && hidden.dim() >= 1 && hidden.size(-1) == weight.size(1) &&
          weight.size(0) >= student.vocabulary && hidden.numel() == student.labels.numel() * weight.size(1),
      "ilme::ops::linear_distillation: the teacher's hidden ", hidden.sizes(), " and weight ", weight.sizes(),
      " do not fit ", student.labels.numel(), " labels and a vocabulary of ", student.vocabulary);
  TORCH_CHECK_VALUE(options.temperature > 0, "ilme::ops::linear_distillation: temperature is ", options.temperature,
                    ", expected more than 0");
  TORCH_CHECK_VALUE(options.cross_entropy_weight >= 0 && options.cross_entropy_weight <= 1,
                    "ilme::ops::linear_distillation: cross_entropy_weight is ", options.cross_entropy_weight,
                    ", expected 0 to 1");
  TORCH_CHECK_VALUE(
      options.logits.label_smoothing == 0 && options.logits.z_loss == 0 && !options.logits.token_log_probabilities,
      "ilme::ops::linear_distillation: has no label_smoothing, z_loss and token_log_probabilities");
  return {hidden.detach().reshape({student.labels.numel(), weight.size(1)}),
          weight.detach().narrow(0, 0, student.vocabulary)};
}

/// Losses of both kinds and, where `gradient` is defined (it may be the student's logits), the gradient of their
/// mixture. Contiguous: logits [rows, vocabulary], labels int64 [rows], the outputs [rows] of accumulate_type.
inline void distillation_rows(const at::Tensor& student, const at::Tensor& teacher, const at::Tensor& labels,
                              const DistillationOptions& options, at::Tensor cross_entropy, at::Tensor divergence,
                              const at::Tensor& gradient) {
  const double temperature = options.temperature, share = options.cross_entropy_weight;
  if (student.is_cpu() && kernel_dtype(student.scalar_type()) && kernels::table().cpu.distillation != nullptr) {
    return check_kernel(
        kernels::table().cpu.distillation({.student = student.const_data_ptr(),
                                           .teacher = teacher.const_data_ptr(),
                                           .labels = labels.const_data_ptr<std::int64_t>(),
                                           .cross_entropy = cross_entropy.mutable_data_ptr<float>(),
                                           .divergence = divergence.mutable_data_ptr<float>(),
                                           .gradient = gradient.defined() ? gradient.mutable_data_ptr() : nullptr,
                                           .rows = student.size(0),
                                           .vocabulary = student.size(1),
                                           .cross_entropy_weight = static_cast<float>(share),
                                           .temperature = static_cast<float>(temperature),
                                           .soft_cap = static_cast<float>(options.logits.soft_cap),
                                           .reverse = options.reverse,
                                           .dtype = *kernel_dtype(student.scalar_type()),
                                           .stream = nullptr}));
  }
  const at::Tensor s = capped_logits(student, options.logits, student.size(1));
  const at::Tensor t = capped_logits(teacher, options.logits, student.size(1));
  const at::Tensor log_probability = s.log_softmax(1), log_p = (s / temperature).log_softmax(1),
                   log_q = (t / temperature).log_softmax(1), target = labels.unsqueeze(1);
  cross_entropy.copy_(log_probability.gather(1, target).squeeze(1).neg());
  const at::Tensor sum = (options.reverse ? log_p.exp() * (log_p - log_q) : log_q.exp() * (log_q - log_p)).sum(1);
  divergence.copy_(sum * (temperature * temperature));
  if (!gradient.defined()) return;
  at::Tensor pull = options.reverse ? log_p.exp() * (log_p - log_q - sum.unsqueeze(1)) : log_p.exp() - log_q.exp();
  at::Tensor of_label = log_probability.exp();
  of_label.scatter_add_(1, target, at::full({}, -1.0, of_label.options()).expand_as(target));
  pull.mul_((1 - share) * temperature).add_(of_label, share);
  if (options.logits.soft_cap > 0) pull.mul_(1 - (s / options.logits.soft_cap).square());
  gradient.copy_(pull);
}

struct DistillationHolder : torch::CustomClassHolder {
  at::Tensor weight, d_hidden, d_weight;
};

/// As LinearCrossEntropyFunction: both gradients are made in the forward, while the logits are there.
struct LinearDistillationFunction : torch::autograd::Function<LinearDistillationFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                                                const at::Tensor& weight, const Head& rows_of_head,
                                                const Teacher& teacher, bool hidden_gradient, bool weight_gradient,
                                                const DistillationOptions& options) {
    const Head head{hidden, weight, rows_of_head.labels, rows_of_head.rows, rows_of_head.vocabulary};
    HeadGradients gradients(head, hidden_gradient, weight_sum(weight, weight_gradient));
    at::Tensor cross_entropy = at::empty({head.counted()}, hidden.options().dtype(accumulate_type(hidden)));
    at::Tensor divergence = at::empty_like(cross_entropy);
    const at::Tensor teacher_weight = teacher.weight.t();
    at::Tensor teacher_logits;
    for_each_chunk(head, options.logits.chunk_bytes / 2, gradients, [&](const at::Tensor& logits, std::int64_t begin) {
      const std::int64_t count = logits.size(0);
      if (!teacher_logits.defined()) teacher_logits = at::empty(logits.sizes(), teacher.weight.options());
      const at::Tensor of_teacher = teacher_logits.narrow(0, 0, count);
      product_into(of_teacher, head.select(teacher.hidden, begin, count), teacher_weight);
      distillation_rows(logits, of_teacher.to(logits.scalar_type()), head.select(head.labels, begin, count), options,
                        cross_entropy.narrow(0, begin, count), divergence.narrow(0, begin, count),
                        hidden_gradient || weight_gradient ? logits : at::Tensor());
    });
    auto holder = c10::make_intrusive<DistillationHolder>();
    holder->weight = weight;
    holder->d_hidden = gradients.hidden;
    holder->d_weight = gradients.weight;
    context->saved_data["gradients"] = c10::IValue::make_capsule(std::move(holder));
    at::Tensor of_labels = cross_entropy.sum(), of_teacher = divergence.sum();
    context->mark_non_differentiable({of_labels, of_teacher});
    const double share = options.cross_entropy_weight;
    return {of_labels * share + of_teacher * (1 - share), of_labels, of_teacher};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list upstream) {
    TORCH_CHECK(context->saved_data.count("gradients") == 1,
                "ilme::ops::linear_distillation: its backward runs once; its gradients are freed after that");
    const auto holder =
        c10::static_intrusive_pointer_cast<DistillationHolder>(context->saved_data["gradients"].toCapsule());
    context->saved_data.clear();
    scale_by(holder->d_hidden, upstream[0]);
    scale_by(holder->d_weight, upstream[0]);
    return {holder->d_hidden, hand_over(holder->weight, std::move(holder->d_weight)), {}, {}, {}, {}, {}};
  }
};

}  // namespace detail

/// The twin of linear_distillation below, over logits of both models that exist as a whole.
inline DistillationLoss linear_distillation_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                                      const at::Tensor& teacher_hidden,
                                                      const at::Tensor& teacher_weight, const at::Tensor& labels,
                                                      const DistillationOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options.logits, "ilme::ops::linear_distillation");
  const detail::Teacher teacher = detail::make_teacher(head, teacher_hidden, teacher_weight, options);
  const auto capped = [&](const at::Tensor& logits) {
    const at::Tensor precise = logits.index_select(0, head.rows).to(detail::accumulate_type(logits));
    const double cap = options.logits.soft_cap;
    return cap > 0 ? (precise / cap).tanh() * cap : precise;
  };
  const at::Tensor student = capped(at::matmul(head.hidden, weight.narrow(0, 0, head.vocabulary).t()));
  const at::Tensor log_p = (student / options.temperature).log_softmax(1);
  const at::Tensor log_q =
      (capped(at::matmul(teacher.hidden, teacher.weight.t())) / options.temperature).log_softmax(1).to(log_p.dtype());
  const at::Tensor divergence = (options.reverse ? at::kl_div(log_q, log_p, at::Reduction::Sum, /*log_target=*/true)
                                                 : at::kl_div(log_p, log_q, at::Reduction::Sum, /*log_target=*/true)) *
                                (options.temperature * options.temperature);
  const at::Tensor cross_entropy =
      at::cross_entropy_loss(student, head.labels.index_select(0, head.rows), {}, at::Reduction::Sum);
  const double share = options.cross_entropy_weight;
  return {
      {cross_entropy * share + divergence * (1 - share), head.counted()}, cross_entropy.detach(), divergence.detach()};
}

/// Sum over the rows of hidden [..., hidden_size] whose label counts (int64, the same leading shape) of the loss that
/// the options describe; logits are hidden @ weight^T of the student and teacher_hidden [..., its hidden_size] @
/// teacher_weight^T [at least the student's vocabulary, its hidden_size] of the teacher, which gets no gradient.
/// Memory, the head's gradient, derivatives and errors are as of linear_cross_entropy; one matrix product more, the
/// teacher's.
inline DistillationLoss linear_distillation(const at::Tensor& hidden, const at::Tensor& weight,
                                            const at::Tensor& teacher_hidden, const at::Tensor& teacher_weight,
                                            const at::Tensor& labels, const DistillationOptions& options = {}) {
  const detail::Head head = detail::make_head(hidden, weight, labels, options.logits, "ilme::ops::linear_distillation");
  const detail::Teacher teacher = detail::make_teacher(head, teacher_hidden, teacher_weight, options);
  const bool recording = c10::GradMode::is_enabled();
  const auto outputs =
      detail::LinearDistillationFunction::apply(head.hidden, weight, head, teacher, recording && hidden.requires_grad(),
                                                recording && weight.requires_grad(), options);
  return {{outputs[0], head.counted()}, outputs[1], outputs[2]};
}

}  // namespace ilme::ops
