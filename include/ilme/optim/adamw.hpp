/// AdamW (Loshchilov & Hutter 2019) with float32 masters for parameters of lower precision.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>

namespace ilme::optim {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// The trainable parameters of a module under their full names; a tensor that stands under two names comes once.
template <class Module>
NamedParameters trainable_parameters(const Module& module) {
  NamedParameters parameters;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  /// Whether a parameter decays. Default: matrices do, norms and other vectors do not.
  std::function<bool(const std::string& name, const at::Tensor& parameter)> decays =
      [](const std::string&, const at::Tensor& parameter) { return parameter.dim() >= 2; };
  /// Factor on the learning rate, by name (embeddings with a rate of their own, say). Default 1.
  std::function<double(const std::string& name)> learning_rate_scale = [](const std::string&) { return 1.0; };
};

/// One step updates every parameter in a fused pass. Moments are float32; a bf16 or fp16 parameter has a float32 master
/// that is updated and then rounded into it, so small steps are not lost. State is named, for checkpoints.
class AdamW {
 public:
  explicit AdamW(NamedParameters parameters, AdamWOptions options = {})
      : parameters_(std::move(parameters)), options_(std::move(options)) {
    const c10::NoGradGuard no_gradient;
    for (const auto& [name, parameter] : parameters_) {
      const bool precise = parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble;
      masters_.push_back(precise ? parameter.detach() : parameter.detach().to(at::kFloat));
      exp_avg_.push_back(at::zeros_like(masters_.back()));
      exp_avg_sq_.push_back(at::zeros_like(masters_.back()));
      const double decay = options_.decays(name, parameter) ? options_.weight_decay : 0.0;
      groups_.push_back({decay, options_.learning_rate_scale(name)});
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }

  /// The parameters in the order of `step`'s gradients.
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, parameter] : parameters_) tensors.push_back(parameter);
    return tensors;
  }

  /// Applies one update. `gradients`: one a parameter, of its master's dtype; undefined ones leave their parameter
  /// alone. `clip` (a float32 scalar tensor) divides every gradient first. `gradients` may be overwritten.
  void step(std::vector<at::Tensor>& gradients, double learning_rate,
            const std::optional<at::Tensor>& clip = std::nullopt) {
    TORCH_CHECK_VALUE(gradients.size() == parameters_.size(), "ilme::optim::AdamW: ", gradients.size(),
                      " gradients for ", parameters_.size(), " parameters");
    const c10::NoGradGuard no_gradient;
    // Parameters that share decay, rate and dtype are updated by one call.
    std::vector<bool> done(parameters_.size(), false);
    for (std::size_t first = 0; first < parameters_.size(); ++first) {
      if (done[first] || !gradients[first].defined()) continue;
      std::vector<at::Tensor> masters, grads, m, v, steps;
      for (std::size_t i = first; i < parameters_.size(); ++i) {
        if (done[i] || !gradients[i].defined() || groups_[i] != groups_[first] ||
            masters_[i].scalar_type() != masters_[first].scalar_type()) {
          continue;
        }
        done[i] = true;
        masters.push_back(masters_[i]);
        grads.push_back(gradients[i]);
        m.push_back(exp_avg_[i]);
        v.push_back(exp_avg_sq_[i]);
        steps.push_back(steps_[i].add_(1));
      }
      at::_fused_adamw_(masters, grads, m, v, /*max_exp_avg_sqs=*/{}, steps, learning_rate * groups_[first].scale,
                        options_.beta1, options_.beta2, groups_[first].decay, options_.epsilon, /*amsgrad=*/false,
                        /*maximize=*/false, clip);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].second;
      if (gradients[i].defined() && parameter.scalar_type() != masters_[i].scalar_type()) parameter.copy_(masters_[i]);
    }
  }

  /// Moments, masters and update counts under "<parameter>.<kind>". The tensors are the live ones: copy to keep.
  NamedParameters state() const {
    NamedParameters named;
    for_each_state([&](std::string name, const at::Tensor& tensor) { named.emplace_back(std::move(name), tensor); });
    return named;
  }

  /// Takes back what `state()` gave; `find(name)` returns a tensor. Shapes that do not fit are an InputError.
  void load_state(const std::function<at::Tensor(const std::string& name)>& find) {
    const c10::NoGradGuard no_gradient;
    const auto load = [&](const std::string& name, const at::Tensor& target) {
      const at::Tensor source = find(name);
      if (source.sizes() != target.sizes()) {
        throw InputError("optimizer state \"", name, "\" has shape ", source.sizes(), ", expected ", target.sizes());
      }
      target.copy_(source);
    };
    for_each_state(load);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (has_master(i)) parameters_[i].second.copy_(masters_[i]);
    }
  }

 private:
  struct Group {
    double decay, scale;
    bool operator==(const Group&) const = default;
  };

  bool has_master(std::size_t i) const { return masters_[i].scalar_type() != parameters_[i].second.scalar_type(); }

  template <class Visit>
  void for_each_state(Visit&& visit) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameters_[i].first;
      visit(name + ".step", steps_[i]);
      visit(name + ".exp_avg", exp_avg_[i]);
      visit(name + ".exp_avg_sq", exp_avg_sq_[i]);
      if (has_master(i)) visit(name + ".master", masters_[i]);
    }
  }

  NamedParameters parameters_;
  AdamWOptions options_;
  std::vector<at::Tensor> masters_, exp_avg_, exp_avg_sq_, steps_;
  std::vector<Group> groups_;
};

}  // namespace ilme::optim
