/// Distillation from a teacher model as a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <ilme/ops/linear_distillation.hpp>

namespace ilme::loss {

/// Kullback-Leibler divergence from a teacher, forward or reverse, mixed with the cross-entropy of the labels, fused
/// with both heads (ops/linear_distillation.hpp). Run the teacher under a no-grad guard.
struct Distillation {
  ops::DistillationOptions options = {};

  ops::DistillationLoss operator()(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& teacher_hidden,
                                   const at::Tensor& teacher_weight, const at::Tensor& labels) const {
    return ops::linear_distillation(hidden, weight, teacher_hidden, teacher_weight, labels, options);
  }
};

}  // namespace ilme::loss
