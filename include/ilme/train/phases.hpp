/// Phases of a run: what trains when, each with a schedule of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/optim/parameter_group.hpp>

namespace ilme::train {

struct Phase {
  std::string name;             ///< for people
  std::int64_t until_step = 0;  ///< its last step, in the run's count from 1
  /// Patterns of the names of what trains (optim::matches); everything else is frozen. Empty: everything trains.
  std::vector<std::string> trainable = {};
  /// The learning rate by the step, counted from 1 in each phase, and the share of the phase's time that has passed
  /// (0 without a time limit); optim::Schedule fits.
  std::function<double(std::int64_t step, double time_share)> learning_rate = {};
};

/// Whether a parameter of this name trains in the phase.
inline bool trains(const Phase& phase, const std::string& name) {
  const auto fits = [&](const std::string& pattern) { return optim::matches(pattern, name); };
  return phase.trainable.empty() || std::any_of(phase.trainable.begin(), phase.trainable.end(), fits);
}

/// Freezes and thaws parameters as the steps go from phase to phase. A frozen parameter does not require gradients, so
/// autograd computes none for it, and an optimizer leaves it alone: no update, no decay, no state before its first
/// phase. Give it to Trainer::run as a callback, or call `before_step(trainer)` in a loop of your own; and
/// `learning_rate` to the trainer's options. It must be used from the first step on; what a checkpoint must hold of it
/// is in `state()`, which matters only with a time limit.
class Phases {
 public:
  /// `parameters`: the optimizer's, all those that train in any phase. The last phase goes on after its last step.
  /// `max_seconds`: the time that the run has, Trainer::seconds(), 0 for any: it is shared out as it comes, so that the
  /// schedule of a phase that the end of time cuts off is done by then. Throws InputError when there is no phase, one
  /// does not end after the one before or has no learning rate, or a pattern matches no parameter.
  Phases(optim::NamedParameters parameters, std::vector<Phase> phases, double max_seconds = 0)
      : parameters_(std::move(parameters)), phases_(std::move(phases)), max_seconds_(max_seconds) {
    if (phases_.empty()) throw InputError("a run has no phase, expected one or more");
    std::int64_t last = 0;
    for (const Phase& phase : phases_) {
      if (phase.until_step <= last) {
        throw InputError("phase \"", phase.name, "\" ends with step ", phase.until_step, ", expected one after step ",
                         last);
      }
      last = phase.until_step;
      if (!phase.learning_rate) throw InputError("phase \"", phase.name, "\" has no learning rate");
      for (const std::string& pattern : phase.trainable) optim::require_match(pattern, parameters_);
    }
  }

  /// Called when a phase begins, and with the one that a run goes on in; `step` is the next one.
  void on_begin(std::function<void(const Phase& phase, std::size_t index, std::int64_t step)> call) {
    on_begin_ = std::move(call);
  }

  /// Makes sure that what trains is what the next step's phase trains.
  template <class Trainer>
  void before_step(Trainer& trainer) {
    const std::int64_t step = trainer.step() + 1;
    const std::size_t index = index_of(step);
    now_ = trainer.seconds();
    if (applied_ && index == index_) return;
    if (index != index_) begin_ = now_;
    index_ = index;
    applied_ = true;
    for (const auto& [name, parameter] : parameters_) parameter.set_requires_grad(trains(phases_[index], name));
    if (on_begin_) on_begin_(phases_[index], index, step);
  }

  /// The learning rate of a step of the run, counted from 1.
  double learning_rate(std::int64_t step) const {
    const std::size_t index = index_of(step);
    const std::int64_t before = index == 0 ? 0 : phases_[index - 1].until_step;
    const double time = max_seconds_ - begin_;
    return phases_[index].learning_rate(step - before, max_seconds_ > 0 && time > 0 ? (now_ - begin_) / time : 0.0);
  }

  const std::vector<Phase>& phases() const noexcept { return phases_; }

  /// Where in time the present phase began.
  Json state() const { return {{"phase", index_}, {"begin_seconds", begin_}}; }

  /// Takes back what `state()` gave, before the first step.
  void restore(const Json& state) {
    JsonObject object(state, "phases");
    index_ = object.require<std::size_t>("phase");
    begin_ = object.require<double>("begin_seconds");
  }

 private:
  std::size_t index_of(std::int64_t step) const {
    std::size_t index = 0;
    while (index + 1 < phases_.size() && step > phases_[index].until_step) ++index;
    return index;
  }

  optim::NamedParameters parameters_;
  std::vector<Phase> phases_;
  double max_seconds_;
  std::function<void(const Phase&, std::size_t, std::int64_t)> on_begin_;
  std::size_t index_ = 0;
  bool applied_ = false;
  double begin_ = 0, now_ = 0;
};

}  // namespace ilme::train
