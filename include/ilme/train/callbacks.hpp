/// Callbacks of Trainer::run: logging, console, evaluation, a clean stop. Checkpoints have a header of their own.
#pragma once

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/trainer.hpp>

namespace ilme::train {

namespace detail {

/// Sums a run of step reports into the figures of one record.
class Window {
 public:
  void add(const StepReport& report) {
    seconds_ += report.seconds;
    data_seconds_ += report.data_seconds;
    positions_ += report.positions;
    last_ = report;
  }
  /// Of the time, what was spent waiting for data.
  double data_share() const { return seconds_ > 0 ? data_seconds_ / seconds_ : 0; }
  double tokens_per_second() const { return seconds_ > 0 ? static_cast<double>(positions_) / seconds_ : 0; }
  template <class Trainer>
  Metrics metrics(Trainer& trainer) const {
    Metrics all{{"loss", last_.loss}, {"grad_norm", last_.grad_norm}};
    put_learning_rates(all, trainer);
    all.insert(all.end(), {{"tokens_per_second", tokens_per_second()},
                           {"loss_tokens", static_cast<double>(last_.loss_tokens)},
                           {"tokens_seen", static_cast<double>(trainer.positions_seen())}});
    return all;
  }

 private:
  /// The rate of what trains, then under its pattern that of each group with a rate of its own.
  template <class Trainer>
  void put_learning_rates(Metrics& metrics, Trainer& trainer) const {
    metrics.emplace_back("learning_rate", last_.learning_rate);
    if constexpr (requires { trainer.optimizer().learning_rates(1.0); }) {
      const auto rates = trainer.optimizer().learning_rates(last_.learning_rate);
      if (!rates.empty()) metrics.back().second = rates.front().second;
      for (const auto& [pattern, rate] : rates) {
        if (!pattern.empty()) metrics.emplace_back("learning_rate/" + pattern, rate);
      }
    }
  }

  double seconds_ = 0, data_seconds_ = 0;
  std::int64_t positions_ = 0;
  StepReport last_;
};

/// Why a step was skipped, and its documents.
inline std::string reason(const StepReport& report) {
  return concat(report.loss_tokens == 0 ? "no token counts in the loss" : "the loss or gradient norm is not finite",
                report.documents.empty() ? "" : " (" + report.documents + ")");
}

inline std::string printed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace detail

/// Writes every `every`-th step's figures to a log. `loss`, `grad_norm` and `learning_rate` are the step's own,
/// `tokens_per_second` is of all positions computed since the last record. Where groups of parameters have learning
/// rates of their own, `learning_rate` is that of the rest (of the first group when nothing else trains) and
/// `learning_rate/<pattern>` that of each group. `data_share` is the share of the time since the last record that this
/// rank waited for data, `skipped_steps` counts those that taught nothing; each also leaves a note. `memory/...` is
/// what tensors held at most, where that is counted.
class LogMetrics {
 public:
  LogMetrics(const MetricLog& log, std::int64_t every) : log_(log), every_(every) {}

  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport& report) {
    window_.add(report);
    if (report.skipped) log_.note(report.step, "skipped", detail::reason(report));
    if (report.step % every_ != 0 && report.step != trainer.total_steps()) return;
    Metrics metrics = window_.metrics(trainer);
    metrics.emplace_back("data_share", window_.data_share());
    metrics.emplace_back("skipped_steps", static_cast<double>(trainer.skipped_steps()));
    if (report.backward_peak_bytes > 0) {
      metrics.emplace_back("memory/backward_peak_bytes", static_cast<double>(report.backward_peak_bytes));
      metrics.emplace_back("memory/update_peak_bytes", static_cast<double>(report.update_peak_bytes));
    }
    log_.write(report.step, metrics);
    window_ = {};
  }

 private:
  const MetricLog& log_;
  std::int64_t every_;
  detail::Window window_;
};

/// What a person watches: a bar with loss, tokens/s and time left on a terminal; elsewhere one key=value line every
/// `every` steps. Steps that were skipped are said at once. Nothing at all unless it `speaks`: one of many ranks does.
class Console {
 public:
  Console(std::string label, std::int64_t first_step, std::int64_t total_steps, std::int64_t every, bool speaks = true)
      : every_(every) {
    if (!speaks) return;
    bar_.emplace(ProgressBar::Options{.label = std::move(label),
                                      .item_name = "steps",
                                      .total = static_cast<double>(total_steps),
                                      .already_done = static_cast<double>(first_step)});
  }

  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport& report) {
    if (!bar_) return;
    window_.add(report);
    if (report.skipped) say(concat("step ", report.step, " skipped: ", detail::reason(report)));
    if (bar_->enabled()) {
      bar_->update(static_cast<double>(report.step), "loss " + detail::printed(report.loss) + "  " +
                                                         format_count(window_.tokens_per_second()) + " tokens/s");
      if (report.step % every_ == 0) window_ = {};
      return;
    }
    if (report.step % every_ != 0 && report.step != trainer.total_steps()) return;
    std::string line = concat("step=", report.step);
    for (const auto& [name, value] : window_.metrics(trainer)) {
      line += " " + name + "=" + detail::printed(value);
    }
    std::fprintf(stderr, "%s\n", line.c_str());
    window_ = {};
  }

  template <class Trainer>
  void on_end(Trainer&) {
    if (bar_) bar_->finish();
  }

  /// Prints a line above the bar.
  void say(const std::string& line) {
    if (!bar_) return;
    bar_->clear();
    std::fprintf(stderr, "%s\n", line.c_str());
  }

 private:
  std::optional<ProgressBar> bar_;  // none on a rank that is silent
  std::int64_t every_;
  detail::Window window_;
};

/// Calls `evaluate()` every `every` steps and after the last one, and logs what it returns.
class Evaluate {
 public:
  Evaluate(const MetricLog& log, std::int64_t every, std::function<Metrics()> evaluate)
      : log_(log), every_(every), evaluate_(std::move(evaluate)) {}

  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport& report) {
    const bool last = report.step == trainer.total_steps();
    if (last || (every_ > 0 && report.step % every_ == 0)) log_.write(report.step, evaluate_());
  }

 private:
  const MetricLog& log_;
  std::int64_t every_;
  std::function<Metrics()> evaluate_;
};

/// Ends the run, for good, with the step in which its wall time (Trainer::seconds) reaches `max_seconds` (0: never).
/// Callbacks that do something after the last step come after this one.
class TimeLimit {
 public:
  explicit TimeLimit(double max_seconds) : max_seconds_(max_seconds) {}

  template <class Trainer>
  void before_step(Trainer& trainer) {  // a run that goes on may have no time left
    if (max_seconds_ > 0 && trainer.seconds() >= max_seconds_) trainer.finish_here();
  }
  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport&) {
    before_step(trainer);
  }

 private:
  double max_seconds_;
};

/// Turns SIGINT and SIGTERM into a stop after the current step, on many ranks when one comes to any of them; a second
/// signal ends the process at once. Handlers are installed by the constructor and put back by the destructor.
class StopOnSignal {
 public:
  StopOnSignal() : old_interrupt_(std::signal(SIGINT, note)), old_terminate_(std::signal(SIGTERM, note)) { flag() = 0; }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() {
    std::signal(SIGINT, old_interrupt_);
    std::signal(SIGTERM, old_terminate_);
  }

  template <class Trainer>
  void before_step(Trainer& trainer) {
    trainer.stop_when([] { return flag() != 0; });
  }
  template <class Trainer>
  void on_step(Trainer& trainer, const StepReport&) {
    if (stopped()) trainer.request_stop();
  }
  bool stopped() const { return flag() != 0; }

 private:
  using Handler = void (*)(int);

  static volatile std::sig_atomic_t& flag() {
    static volatile std::sig_atomic_t value = 0;
    return value;
  }
  static void note(int signal) {
    flag() = 1;
    std::signal(signal, SIG_DFL);  // the second one ends the process
  }

  Handler old_interrupt_, old_terminate_;
};

}  // namespace ilme::train
