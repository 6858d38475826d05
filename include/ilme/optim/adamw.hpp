/// AdamW (Loshchilov & Hutter 2019) with float32 masters for parameters of lower precision.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/optim/parameter_group.hpp>

namespace ilme::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< of matrices; norms and other vectors have none unless a group gives them one
  std::vector<ParameterGroup> groups = {};
};

/// One step updates every parameter in a fused pass. Moments are float32; a bf16 or fp16 parameter has a float32 master
/// that is updated and then rounded into it, so small steps are not lost. A parameter's state is made by its first
/// update: one that never gets a gradient takes no memory, and bias correction counts from its own first step.
class AdamW {
 public:
  /// Throws InputError for a group whose pattern matches no parameter.
  explicit AdamW(NamedParameters parameters, const AdamWOptions& options = {})
      : parameters_(std::move(parameters)), options_(options), states_(parameters_.size()) {
    for (const ParameterGroup& group : options.groups) require_match(group.pattern, parameters_);
    for (const auto& [name, parameter] : parameters_) rules_.push_back(rule_for(name, parameter));
  }

  /// What it may update, in the order of `step`'s gradients.
  const NamedParameters& named_parameters() const { return parameters_; }

  /// Those that have been updated: the others are what they were at the start.
  NamedParameters updated_parameters() const {
    NamedParameters updated;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (states_[i].steps.defined()) updated.push_back(parameters_[i]);
    }
    return updated;
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
        if (done[i] || !gradients[i].defined() || !(rules_[i] == rules_[first]) ||
            master_type(i) != master_type(first)) {
          continue;
        }
        done[i] = true;
        State& state = made_state(i);
        masters.push_back(state.master);
        grads.push_back(gradients[i]);
        m.push_back(state.exp_avg);
        v.push_back(state.exp_avg_sq);
        steps.push_back(state.steps.add_(1));
      }
      at::_fused_adamw_(masters, grads, m, v, /*max_exp_avg_sqs=*/{}, steps, learning_rate * rules_[first].scale,
                        options_.beta1, options_.beta2, rules_[first].decay, options_.epsilon, /*amsgrad=*/false,
                        /*maximize=*/false, clip);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (gradients[i].defined() && has_master(i)) parameters_[i].second.copy_(states_[i].master);
    }
  }

  /// The learning rates that a step at `learning_rate` has for the parameters that train now (requires_grad), by the
  /// pattern that sets them; "" stands for the rate of all others and comes first, if there are any.
  std::vector<std::pair<std::string, double>> learning_rates(double learning_rate) const {
    std::vector<std::pair<std::string, double>> rates;
    const auto add = [&](bool own) {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Rule& rule = rules_[i];
        if (!parameters_[i].second.requires_grad() || rule.rate_pattern.empty() == own) continue;
        const auto known = [&](const auto& rate) { return rate.first == rule.rate_pattern; };
        if (std::any_of(rates.begin(), rates.end(), known)) continue;
        rates.emplace_back(rule.rate_pattern, learning_rate * rule.scale);
      }
    };
    add(false);
    add(true);
    return rates;
  }

  /// Moments, masters and update counts under "<parameter>.<kind>", of the updated parameters. The tensors are the live
  /// ones: copy to keep.
  NamedParameters state() const {
    NamedParameters named;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!states_[i].steps.defined()) continue;
      for (const auto& [kind, tensor] : parts(i)) named.emplace_back(parameters_[i].first + "." + kind, tensor);
    }
    return named;
  }

  /// Takes back what `state()` gave; parameters that it does not name start anew. Throws InputError for a part that is
  /// missing, has no place here or another shape.
  void load_state(const NamedParameters& saved) {
    const c10::NoGradGuard no_gradient;
    std::map<std::string, at::Tensor> rest(saved.begin(), saved.end());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameters_[i].first;
      states_[i] = {};
      if (!rest.contains(name + ".step")) continue;
      made_state(i);
      for (const auto& [kind, target] : parts(i)) {
        const auto source = rest.extract(name + "." + kind);
        if (source.empty()) throw InputError("optimizer state \"", name, ".", kind, "\" is missing");
        if (source.mapped().sizes() != target.sizes()) {
          throw InputError("optimizer state \"", name, ".", kind, "\" has shape ", source.mapped().sizes(),
                           ", expected ", target.sizes());
        }
        target.copy_(source.mapped());
      }
      if (has_master(i)) parameters_[i].second.copy_(states_[i].master);
    }
    if (!rest.empty()) throw InputError("optimizer state \"", rest.begin()->first, "\" is of no parameter of this run");
  }

 private:
  struct Rule {
    double decay = 0, scale = 1;
    std::string rate_pattern;  // "": the rate is the step's own
    bool operator==(const Rule&) const = default;
  };
  struct State {
    at::Tensor master, exp_avg, exp_avg_sq, steps;  // the master is the parameter itself when that is precise enough
  };

  Rule rule_for(const std::string& name, const at::Tensor& parameter) const {
    Rule rule;
    std::optional<double> decay;
    for (const ParameterGroup& group : options_.groups) {
      if (!matches(group.pattern, name)) continue;
      if (group.learning_rate_scale && rule.rate_pattern.empty()) {
        rule.scale = *group.learning_rate_scale;
        rule.rate_pattern = group.pattern;
      }
      if (group.weight_decay && !decay) decay = group.weight_decay;
    }
    rule.decay = decay.value_or(parameter.dim() >= 2 ? options_.weight_decay : 0.0);
    return rule;
  }

  at::ScalarType master_type(std::size_t i) const {
    return parameters_[i].second.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  bool has_master(std::size_t i) const { return master_type(i) != parameters_[i].second.scalar_type(); }

  State& made_state(std::size_t i) {
    State& state = states_[i];
    if (state.steps.defined()) return state;
    state.master = parameters_[i].second.detach().to(master_type(i));
    state.exp_avg = at::zeros_like(state.master);
    state.exp_avg_sq = at::zeros_like(state.master);
    state.steps = at::zeros({}, at::kFloat);
    return state;
  }

  std::vector<std::pair<const char*, at::Tensor>> parts(std::size_t i) const {
    const State& state = states_[i];
    std::vector<std::pair<const char*, at::Tensor>> all{
        {"step", state.steps}, {"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}};
    if (has_master(i)) all.emplace_back("master", state.master);
    return all;
  }

  NamedParameters parameters_;
  AdamWOptions options_;
  std::vector<Rule> rules_;
  std::vector<State> states_;
};

}  // namespace ilme::optim
