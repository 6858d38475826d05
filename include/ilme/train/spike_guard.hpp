/// Going back when the loss leaps: a checkpoint's weights again, and the batches since passed over.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/step_report.hpp>

namespace ilme::train {

struct SpikeOptions {
  double factor = 0;             ///< a loss above so many times the median of the last ones is a spike; 0: none is
  std::int64_t window = 32;      ///< how many last ones
  std::int64_t least = 8;        ///< how many it takes to judge
  std::int64_t bad_steps = 3;    ///< so many losses or norms in a row that are not finite are a spike too
  std::int64_t max_rewinds = 8;  ///< in the whole run; then spikes are only said
};

/// A callback that undoes spikes of the loss, as PaLM's training did (Chowdhery et al. 2022, section 5.1): parameters,
/// optimizer, random generators and the step count go back to the newest checkpoint from before the spike, but the data
/// goes on after the batches that led to it. When the run then spikes again no later than it did before, it goes back
/// to a checkpoint that is older still, where there is one. Every rank sees the same losses, so all do the same.
///
/// It comes after the callbacks that log a step and before the one that saves checkpoints.
class SpikeGuard {
 public:
  /// The newest whole checkpoint of this run from before a step, once nothing is being saved; nothing where there is
  /// none to go back to (Checkpoints::wait, CheckpointStore::load_before).
  using Load = std::function<std::optional<checkpoint::Loaded>(std::int64_t step)>;

  /// Every spike leaves a note named "spike" in the log, and every rewind a record of "rewinds", their number so far.
  SpikeGuard(SpikeOptions options, const MetricLog& log) : options_(options), log_(log) {
    if (options_.factor != 0 && !(options_.factor > 1)) {
      throw InputError("a loss ", options_.factor, " times the median is no spike: expected a factor above 1, or 0");
    }
  }

  /// Where a checkpoint holds `state()`, beside the trainer's (snapshot's `more`).
  static constexpr const char* kName = "spikes";

  /// Needed before the first step. What else a checkpoint holds of the caller's is the caller's to take back.
  void load_with(Load load) { load_ = std::move(load); }

  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport& report) {
    if (options_.factor == 0 || report.loss_tokens == 0) return;
    if (report.skipped) {
      if (bad_++ == 0) first_bad_ = report.step;
      if (bad_ < options_.bad_steps) return;
      undo(trainer, first_bad_, report.step,
           concat("step ", report.step, ": ", bad_, " losses or gradient norms in a row are not finite"));
      bad_ = 0;
      return;
    }
    bad_ = 0;
    const double median = this->median();
    if (report.loss > options_.factor * median &&
        undo(trainer, report.step, report.step,
             concat("step ", report.step, ": the loss is ", report.loss, ", ", report.loss / median,
                    " times the median of the last ", losses_.size()))) {
      return;
    }
    losses_.push_back(report.loss);
    if (losses_.size() > static_cast<std::size_t>(options_.window)) losses_.erase(losses_.begin());
  }

  std::int64_t rewinds() const noexcept { return rewinds_; }

  /// What a checkpoint holds of it.
  Json state() const {
    return {{"losses", losses_}, {"rewinds", rewinds_}, {"last_spike", last_spike_}, {"target", target_}};
  }
  void restore(const Json& state) {
    JsonObject object(state, "spike guard");
    losses_ = object.require<std::vector<double>>("losses");
    rewinds_ = object.require<std::int64_t>("rewinds");
    last_spike_ = object.require<std::int64_t>("last_spike");
    target_ = object.require<std::int64_t>("target");
    bad_ = 0;
  }

 private:
  /// Infinite as long as there are too few to judge by.
  double median() const {
    if (losses_.size() < static_cast<std::size_t>(options_.least)) return std::numeric_limits<double>::infinity();
    std::vector<double> sorted = losses_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

  /// Undoes the spike that began with step `first` and was seen at step `seen`; false when the run goes on instead.
  template <class Trainer>
  bool undo(Trainer& trainer, std::int64_t first, std::int64_t seen, std::string line) {
    if (const std::string documents = trainer.documents(); !documents.empty()) line += " (" + documents + ")";
    const auto tell = [&](const std::string& what) { log_.note(seen, "spike", line + what); };
    if (rewinds_ >= options_.max_rewinds) {
      tell(concat("; going on after ", rewinds_, " rewinds"));
      return false;
    }
    std::optional<checkpoint::Loaded> checkpoint;
    if (seen <= last_spike_) checkpoint = load_(target_);
    if (!checkpoint) checkpoint = load_(first);
    if (!checkpoint) {
      tell("; going on, there is no checkpoint to go back to");
      return false;
    }
    const Json now = trainer.state();
    Json& back = checkpoint->state.at("trainer");
    for (const char* key : {"source", "seconds", "skipped_steps"}) back[key] = now.at(key);
    train::restore(trainer, *checkpoint);
    // Those of the steps that have been undone are no measure for steps that come before them.
    const Json& state = checkpoint->state;
    losses_.clear();
    if (state.contains(kName)) losses_ = JsonObject(state.at(kName), kName).require<std::vector<double>>("losses");
    ++rewinds_;
    last_spike_ = seen;
    target_ = trainer.step();
    tell(concat("; back to step ", target_, ", on with the next batches (rewind ", rewinds_, " of at most ",
                options_.max_rewinds, ")"));
    log_.write(seen, {{"rewinds", static_cast<double>(rewinds_)}});
    return true;
  }

  SpikeOptions options_;
  const MetricLog& log_;
  Load load_;
  std::vector<double> losses_;  // of the last steps that learnt
  std::int64_t bad_ = 0, first_bad_ = 0;
  std::int64_t rewinds_ = 0, last_spike_ = 0, target_ = 0;
};

}  // namespace ilme::train
