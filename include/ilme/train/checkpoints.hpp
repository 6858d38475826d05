/// The callback that saves checkpoints during a run.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/scalar_tensor.h>

#include <ilme/checkpoint/background_saver.hpp>
#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/json.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/trainer.hpp>

namespace ilme::train {

/// Saves every `every` steps (0: only at the end), when the metric to keep (checkpoint::Retention) is better than ever,
/// and whenever the run ends early, so that it can go on from there; the end of the run waits until all is on the disk.
/// `more()` gives what is stored beside the trainer's state (snapshot). An error of a save in the background comes out
/// at the next save or the end.
class Checkpoints {
 public:
  Checkpoints(checkpoint::CheckpointStore& store, std::int64_t every, std::function<Json()> more,
              checkpoint::Background background = checkpoint::Background::automatic)
      : store_(store), saver_(store, background), every_(every), more_(std::move(more)) {}

  /// Takes the figures of a step's weights (a sink of MetricLog), before this callback sees the step. Every rank must
  /// be told at the same steps; rank 0's values count.
  void note(std::int64_t step, const Metrics& metrics) {
    if (step != noted_step_) noted_.clear();
    noted_step_ = step;
    for (const auto& [name, value] : metrics) noted_[name] = value;
  }

  /// Goes on from a checkpoint: it is not saved once more, and the best so far is what it says.
  void restore(const checkpoint::Loaded& checkpoint) {
    saved_ = checkpoint.step;
    if (!checkpoint.state.contains("best")) return;
    const Json json = checkpoint.state.at("best");
    JsonObject object(json, "best checkpoint");
    if (object.require<std::string>("metric") != metric()) return;
    best_ = Best{object.require<double>("value"), object.require<std::int64_t>("step")};
  }

  /// Returns when the store is free: nothing is being saved in the background. Throws the error of the last save.
  void wait() { saver_.wait(); }

  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport& report) {
    if (trainer.step() != report.step) return;  // the step was undone
    const bool best = is_best(trainer, report.step);
    if (best || (every_ > 0 && report.step % every_ == 0)) {
      save(trainer, [&](auto&&... what) { saver_.save(what...); });
    }
  }
  template <class Trainer>
  void on_end(Trainer& trainer) {
    wait();
    if (trainer.step() != saved_) save(trainer, [&](auto&&... what) { store_.save(what...); });  // nothing goes on
  }

 private:
  struct Best {
    double value;
    std::int64_t step;
  };

  const std::string& metric() const { return store_.retention().keep_best; }

  /// Whether the step's weights are the best so far; then they are what `best_` says.
  template <class Trainer>
  bool is_best(Trainer& trainer, std::int64_t step) {
    if (metric().empty() || noted_step_ != step || !noted_.contains(metric())) return false;
    at::Tensor agreed = at::scalar_tensor(noted_[metric()], at::kDouble);
    group_of(trainer).broadcast(agreed, 0);
    const auto value = agreed.item<double>();
    if (!std::isfinite(value) || (best_ && !store_.retention().better(value, best_->value))) return false;
    best_ = Best{value, step};
    return true;
  }

  template <class Trainer, class Save>
  void save(Trainer& trainer, Save&& save_contents) {
    if (trainer.step() != noted_step_) noted_.clear();
    Json more = more_();
    if (best_) more["best"] = {{"metric", metric()}, {"value", best_->value}, {"step", best_->step}};
    save_contents(trainer.step(), snapshot(trainer, more), noted_);
    saved_ = trainer.step();
  }

  checkpoint::CheckpointStore& store_;
  checkpoint::BackgroundSaver saver_;
  std::int64_t every_;
  std::function<Json()> more_;
  std::int64_t saved_ = 0, noted_step_ = -1;
  std::map<std::string, double> noted_;
  std::optional<Best> best_;
};

}  // namespace ilme::train
