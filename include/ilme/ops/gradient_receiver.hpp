/// Where an operation hands a parameter's gradient that it made early and more precisely than autograd could carry it.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace ilme::ops {

/// Takes `gradient` (the parameter's shape, usually float32) for `parameter`. Empty: the gradient goes through autograd
/// and is rounded to the parameter's dtype there. optim::GradientSink provides one.
using GradientReceiver = std::function<void(const at::Tensor& parameter, at::Tensor gradient)>;

}  // namespace ilme::ops
