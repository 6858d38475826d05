/// AdamW (Loshchilov & Hutter 2019): the update of all parameters in one pass, and its plain twin.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/kernels/abi.hpp>
#include <ilme/ops/kernel.hpp>

namespace ilme::ops {

struct AdamWRule {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
};

/// One parameter's share of a step; all tensors have its shape. Three forms:
/// - float32 or float64, moments of the same dtype, no master;
/// - bf16 or fp16 with `master`, exp_avg and exp_avg_sq in float32: the master is updated and rounded into it;
/// - bf16 without a master, exp_avg in bf16, exp_avg_sq in float32: the results of float32 arithmetic are rounded
///   stochastically into the parameter and exp_avg, so that steps below half a unit are not lost but made now and then.
struct AdamWTensors {
  at::Tensor parameter, gradient;  ///< the gradient may be of any floating dtype
  at::Tensor master, exp_avg, exp_avg_sq;
  std::int64_t step = 1;  ///< updates of this parameter, this one included
  double learning_rate = 0, weight_decay = 0;
  std::uint64_t key = 0;  ///< what stochastic rounding depends on, beside the element's place
  /// Where these tensors begin in what they are a part of, in elements: a part is rounded as it would be in the whole.
  std::int64_t first_element = 0;
};

namespace detail {

/// The random words of `count` elements from `first` on for a key (kernels/abi.hpp says how), int64.
inline at::Tensor rounding_words(std::uint64_t key, std::int64_t first, std::int64_t count, const at::Device& device) {
  constexpr std::int64_t kWord = 0xFFFFFFFF;
  const auto mix = [](at::Tensor word) {
    word = word.bitwise_and_(kWord);
    word = word.bitwise_xor_(word.bitwise_right_shift(16)).mul_(0x85EBCA6BL).bitwise_and_(kWord);
    word = word.bitwise_xor_(word.bitwise_right_shift(13)).mul_(0xC2B2AE35L).bitwise_and_(kWord);
    return word.bitwise_xor_(word.bitwise_right_shift(16));
  };
  const at::Tensor element = at::arange(first, first + count, at::TensorOptions(at::kLong).device(device));
  const auto low = static_cast<std::int64_t>(key & kWord), high = static_cast<std::int64_t>(key >> 32);
  return mix(mix(element.bitwise_and(kWord).add_(low)).add_(element.bitwise_right_shift(32)).add_(high));
}

/// float32 to bf16, up where the 16 bits that are cut off and `random` (int64, 0 to 65,535) sum to more than 16 bits.
inline at::Tensor round_stochastically(const at::Tensor& value, const at::Tensor& random) {
  const at::Tensor word = value.view(at::kInt).to(at::kLong).bitwise_and_(0xFFFFFFFF);
  at::Tensor rounded = (word + random.view(value.sizes())).bitwise_and_(0xFFFF0000);
  rounded = at::where(rounded >= 0x80000000, rounded - 0x100000000, rounded).to(at::kInt).view(at::kFloat);
  return at::where(value.isnan(), value, rounded).to(at::kBFloat16);
}

}  // namespace detail

/// The twin of adamw_step below in plain operations, as torch.optim.AdamW computes it, in float32 (float64 for
/// float64).
inline void adamw_step_reference(const std::vector<AdamWTensors>& tensors, const AdamWRule& rule,
                                 const std::optional<at::Tensor>& divisor = std::nullopt) {
  const c10::NoGradGuard no_gradient;
  for (const AdamWTensors& t : tensors) {
    const bool stochastic = !t.master.defined() && t.parameter.scalar_type() == at::kBFloat16;
    at::Tensor value = stochastic ? t.parameter.to(at::kFloat) : t.master.defined() ? t.master : t.parameter;
    at::Tensor exp_avg = stochastic ? t.exp_avg.to(at::kFloat) : t.exp_avg;
    at::Tensor gradient = t.gradient.to(value.scalar_type());
    if (divisor) gradient = gradient / divisor->to(gradient.options());
    const double correction1 = 1 - std::pow(rule.beta1, t.step), correction2 = 1 - std::pow(rule.beta2, t.step);
    value.mul_(1 - t.learning_rate * t.weight_decay);
    exp_avg.lerp_(gradient, 1 - rule.beta1);
    t.exp_avg_sq.mul_(rule.beta2).addcmul_(gradient, gradient, 1 - rule.beta2);
    const at::Tensor root = t.exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(rule.epsilon);
    value.addcdiv_(exp_avg, root, -t.learning_rate / correction1);
    if (stochastic) {
      const at::Tensor words = detail::rounding_words(t.key, t.first_element, value.numel(), value.device());
      t.parameter.copy_(detail::round_stochastically(value, words.bitwise_and(0xFFFF)));
      t.exp_avg.copy_(detail::round_stochastically(exp_avg, words.bitwise_right_shift(16)));
    } else if (t.master.defined()) {
      t.parameter.copy_(t.master);
    }
  }
}

namespace detail {

inline bool adamw_kernel_takes(const AdamWTensors& t) {
  return t.parameter.device().is_cpu() && kernel_dtype(t.parameter.scalar_type()) && t.parameter.is_contiguous() &&
         kernel_dtype(t.gradient.scalar_type()) && kernels::table().cpu.adamw_step != nullptr;
}

inline kernels::AdamWTensor kernel_tensor(const AdamWTensors& t, const AdamWRule& rule) {
  const double step = static_cast<double>(t.step);
  return {t.parameter.mutable_data_ptr(),
          t.gradient.const_data_ptr(),
          t.master.defined() ? t.master.mutable_data_ptr<float>() : nullptr,
          t.exp_avg.mutable_data_ptr(),
          t.exp_avg_sq.mutable_data_ptr<float>(),
          t.parameter.numel(),
          *kernel_dtype(t.parameter.scalar_type()),
          *kernel_dtype(t.gradient.scalar_type()),
          static_cast<float>(1 - t.learning_rate * t.weight_decay),
          static_cast<float>(t.learning_rate / (1 - std::pow(rule.beta1, step))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(rule.beta2, step))),
          t.first_element,
          t.key};
}

}  // namespace detail

/// Divides every gradient by `divisor` (a scalar tensor; none is 1) and applies one AdamW update, decay decoupled,
/// epsilon beside the corrected root. One pass by ilme::kernels where the target is linked and has a kernel (contiguous
/// CPU tensors of float32, bf16 and fp16); otherwise at::_fused_adamw_, which overwrites gradients when there is a
/// divisor, and the twin for stochastic rounding and for parameters that are not contiguous.
inline void adamw_step(std::vector<AdamWTensors> tensors, const AdamWRule& rule,
                       const std::optional<at::Tensor>& divisor = std::nullopt) {
  const c10::NoGradGuard no_gradient;
  std::vector<kernels::AdamWTensor> kernel;
  for (AdamWTensors& t : tensors) {
    TORCH_CHECK_VALUE(t.gradient.sizes() == t.parameter.sizes(), "ilme::ops::adamw_step: a gradient ",
                      t.gradient.sizes(), " for a parameter ", t.parameter.sizes());
    TORCH_CHECK_VALUE(t.master.defined() || t.parameter.scalar_type() != at::kHalf,
                      "ilme::ops::adamw_step: a float16 parameter ", t.parameter.sizes(), " without a master");
    if (detail::adamw_kernel_takes(t)) {
      t.gradient = t.gradient.contiguous();
      kernel.push_back(detail::kernel_tensor(t, rule));
      t.parameter.unsafeGetTensorImpl()->bump_version();  // a backward that still needs the old value must notice
    } else if ((!t.master.defined() && t.parameter.scalar_type() == at::kBFloat16) || !t.parameter.is_contiguous()) {
      adamw_step_reference({t}, rule, divisor);
    } else {
      const at::Tensor value = t.master.defined() ? t.master : t.parameter.detach();
      at::Tensor count = at::scalar_tensor(t.step, value.options().dtype(at::kFloat));
      std::optional<at::Tensor> scale;
      if (divisor) scale = divisor->to(value.device(), at::kFloat);
      at::_fused_adamw_({value}, {t.gradient.to(value.scalar_type()).contiguous()}, {t.exp_avg}, {t.exp_avg_sq},
                        /*max_exp_avg_sqs=*/{}, {count}, t.learning_rate, rule.beta1, rule.beta2, t.weight_decay,
                        rule.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale);
      if (t.master.defined()) t.parameter.copy_(t.master);
    }
  }
  if (kernel.empty()) return;
  at::Tensor scale;
  if (divisor) scale = divisor->to(at::kCPU, at::kFloat);
  detail::check_kernel(kernels::table().cpu.adamw_step({kernel.data(), static_cast<std::int64_t>(kernel.size()),
                                                        divisor ? scale.const_data_ptr<float>() : nullptr, rule.beta1,
                                                        rule.beta2, rule.epsilon}));
}

}  // namespace ilme::ops
