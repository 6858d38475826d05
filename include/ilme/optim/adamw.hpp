/// AdamW (Loshchilov & Hutter 2019) with float32 masters, or with stochastic rounding and no masters.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/core/random.hpp>
#include <ilme/ops/adamw_step.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::optim {

/// What is kept beside a bf16 parameter. `masters`: a float32 copy that is updated and then rounded into it, and two
/// float32 moments, 12 bytes an element. `bf16`: the first moment in bf16 and the second in float32, 6 bytes; parameter
/// and first moment are rounded stochastically, so that small steps count in the mean (Gupta et al. 2015).
enum class AdamWState { masters, bf16 };

/// "masters" or "bf16"; InputError for anything else.
inline AdamWState parse_adamw_state(const std::string& name) {
  if (name == "masters") return AdamWState::masters;
  if (name == "bf16") return AdamWState::bf16;
  throw InputError("optimizer state \"", name, "\": expected masters or bf16");
}

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  ///< of matrices; norms and other vectors have none unless a group gives them one
  std::vector<ParameterGroup> groups = {};
  AdamWState state = AdamWState::masters;
  std::uint64_t seed = 0;  ///< of stochastic rounding
};

/// One step updates every parameter in one pass (ops::adamw_step). Moments are float32; a bf16 or fp16 parameter has a
/// float32 master that is updated and then rounded into it, so small steps are not lost; AdamWState::bf16 does without
/// for bf16 parameters and changes nothing for the others. Rounding depends on the seed, the parameter's place and its
/// number of updates alone, so a resumed run draws the same. A parameter's state is made by its first update: one that
/// never gets a gradient takes no memory, and bias correction counts from its own first step.
class AdamW {
 public:
  /// Throws InputError for a group whose pattern matches no parameter.
  explicit AdamW(const NamedParameters& parameters, const AdamWOptions& options = {})
      : AdamW(whole_slices(parameters), options) {}

  /// Updates this rank's slices as they would be in the whole parameters. Every rank must give all that train, in the
  /// same order, empty slices too.
  template <std::same_as<std::vector<ParameterSlice>> Slices>  // a template: no list of pairs is taken for slices
  explicit AdamW(Slices slices, const AdamWOptions& options = {})
      : slices_(std::move(slices)), options_(options), states_(slices_.size()) {
    for (const ParameterSlice& slice : slices_) parameters_.emplace_back(slice.name, slice.tensor);
    for (const ParameterGroup& group : options.groups) require_match(group.pattern, parameters_);
    for (const ParameterSlice& slice : slices_) rules_.push_back(rule_for(slice));
  }

  /// What it may update, in the order of `step`'s gradients.
  const NamedParameters& named_parameters() const { return parameters_; }
  /// The same, with their place in the whole parameters.
  const std::vector<ParameterSlice>& slices() const { return slices_; }

  /// Those that have been updated: the others are what they were at the start.
  NamedParameters updated_parameters() const {
    NamedParameters updated;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (states_[i].steps.defined()) updated.push_back(parameters_[i]);
    }
    return updated;
  }

  /// Applies one update. `gradients`: one a parameter, of any floating dtype; undefined ones leave their parameter
  /// alone. `divisor` (a float32 scalar tensor) divides every gradient first. `gradients` may be overwritten.
  void step(std::vector<at::Tensor>& gradients, double learning_rate,
            const std::optional<at::Tensor>& divisor = std::nullopt) {
    TORCH_CHECK_VALUE(gradients.size() == parameters_.size(), "ilme::optim::AdamW: ", gradients.size(),
                      " gradients for ", parameters_.size(), " parameters");
    std::vector<ops::AdamWTensors> tensors;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (gradients[i].defined()) tensors.push_back(begin_update(i, gradients[i], learning_rate));
    }
    ops::adamw_step(std::move(tensors), rule(), divisor);
  }

  /// The same for one parameter alone.
  void step_one(std::size_t index, const at::Tensor& gradient, double learning_rate,
                const std::optional<at::Tensor>& divisor = std::nullopt) {
    ops::adamw_step({begin_update(index, gradient, learning_rate)}, rule(), divisor);
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

  /// Bytes that the state takes once every parameter that trains now (requires_grad) has been updated.
  std::int64_t state_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& parameter = parameters_[i].second;
      if (!parameter.requires_grad() && !states_[i].steps.defined()) continue;
      const std::int64_t each = has_master(i) ? 12 : rounds_stochastically(i) ? 6 : type(i) == at::kDouble ? 16 : 8;
      bytes += each * parameter.numel() + static_cast<std::int64_t>(sizeof(float));
    }
    return bytes;
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

  /// Takes over the state of an earlier run: `read` gives the parts that `state()` names. Parameters that have no
  /// "step" start anew. Parts are converted to the types of this run: a run in float32 with moments in float32 and one
  /// with masters go on from each other exactly, AdamWState::bf16 rounds the first moment to nearest. A master is asked
  /// for where this run has them. Throws InputError for a part that is missing.
  void load_state(const StateReader& read) {
    const c10::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      states_[i] = {};
      if (!read(slices_[i], "step", at::empty({}, at::kFloat))) continue;
      made_state(i);
      for (const auto& [kind, target] : parts(i)) {
        if (!read(slices_[i], kind, target)) {
          throw InputError("optimizer state \"", slices_[i].name, ".", kind, "\" is missing");
        }
      }
      states_[i].count = static_cast<std::int64_t>(states_[i].steps.item<double>());
      if (has_master(i)) parameters_[i].second.copy_(states_[i].master);
    }
  }

 private:
  struct Rule {
    double decay = 0, scale = 1;
    std::string rate_pattern;  // "": the rate is the step's own
  };
  struct State {
    at::Tensor master, exp_avg, exp_avg_sq, steps;  // no master where the parameter itself is what is updated
    std::int64_t count = 0;                         // the value of `steps`
  };

  Rule rule_for(const ParameterSlice& slice) const {
    Rule rule;
    std::optional<double> decay;
    for (const ParameterGroup& group : options_.groups) {
      if (!matches(group.pattern, slice.name)) continue;
      if (group.learning_rate_scale && rule.rate_pattern.empty()) {
        rule.scale = *group.learning_rate_scale;
        rule.rate_pattern = group.pattern;
      }
      if (group.weight_decay && !decay) decay = group.weight_decay;
    }
    rule.decay = decay.value_or(slice.shape.size() >= 2 ? options_.weight_decay : 0.0);
    return rule;
  }

  at::ScalarType type(std::size_t i) const { return parameters_[i].second.scalar_type(); }
  bool rounds_stochastically(std::size_t i) const {
    return options_.state == AdamWState::bf16 && type(i) == at::kBFloat16;
  }
  bool has_master(std::size_t i) const {
    return type(i) != at::kDouble && type(i) != at::kFloat && !rounds_stochastically(i);
  }

  State& made_state(std::size_t i) {
    State& state = states_[i];
    if (state.steps.defined()) return state;
    const at::Tensor parameter = parameters_[i].second.detach();
    if (has_master(i)) state.master = parameter.to(at::kFloat);
    const at::ScalarType precise = type(i) == at::kDouble ? at::kDouble : at::kFloat;
    state.exp_avg = at::zeros_like(parameter, rounds_stochastically(i) ? at::kBFloat16 : precise);
    state.exp_avg_sq = at::zeros_like(parameter, precise);
    state.steps = at::zeros({}, at::kFloat);
    return state;
  }

  ops::AdamWRule rule() const { return {options_.beta1, options_.beta2, options_.epsilon}; }

  /// Counts an update of a parameter and says what it is to be.
  ops::AdamWTensors begin_update(std::size_t i, const at::Tensor& gradient, double learning_rate) {
    const c10::NoGradGuard no_gradient;
    State& state = made_state(i);
    state.steps.add_(1);
    ++state.count;
    return {.parameter = parameters_[i].second,
            .gradient = gradient,
            .master = state.master,
            .exp_avg = state.exp_avg,
            .exp_avg_sq = state.exp_avg_sq,
            .step = state.count,
            .learning_rate = learning_rate * rules_[i].scale,
            .weight_decay = rules_[i].decay,
            .key = random_bits(options_.seed, i, state.count),
            .first_element = slices_[i].begin};
  }

  std::vector<std::pair<const char*, at::Tensor>> parts(std::size_t i) const {
    const State& state = states_[i];
    std::vector<std::pair<const char*, at::Tensor>> all{
        {"step", state.steps}, {"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}};
    if (state.master.defined()) all.emplace_back("master", state.master);
    return all;
  }

  std::vector<ParameterSlice> slices_;
  NamedParameters parameters_;
  AdamWOptions options_;
  std::vector<Rule> rules_;
  std::vector<State> states_;
};

}  // namespace ilme::optim
