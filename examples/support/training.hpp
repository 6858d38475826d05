/// A run of ilme-pretrain or ilme-finetune with everything people see around it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/dist/sharding.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/nn/recompute.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/checkpoints.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/metrics_file.hpp>
#include <ilme/train/phases.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/spike_guard.hpp>
#include <ilme/train/tensorboard.hpp>
#include <ilme/train/trainer.hpp>

#include "support/memory_report.hpp"
#include "support/training_options.hpp"

namespace ilme {

/// The newest usable checkpoint that --resume allows. Damaged ones are passed over with a warning.
inline std::optional<checkpoint::Loaded> find_checkpoint(const TrainingOptions& options,
                                                         checkpoint::CheckpointStore& store) {
  if (options.resume == "never") return std::nullopt;
  if (options.resume != "auto") return store.load(options.resume);
  return store.load_latest([](const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); });
}

/// Says which settings differ from those that the checkpoint was made with; the command line wins.
inline void report_changed_settings(const Json& before, const Json& now) {
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key) || before.at(key) == value) continue;
    std::fprintf(stderr, "note: %s was %s when the checkpoint was made, now %s\n", key.c_str(),
                 before.at(key).dump().c_str(), value.dump().c_str());
  }
}

/// What a program gives to its run beside the options.
struct TrainingRun {
  std::string label;  ///< for the progress bar
  std::int64_t total_steps = 0;
  std::vector<train::Phase> phases = {};
  Json settings = Json::object();                 ///< stored with checkpoints and compared on resume
  std::function<train::Metrics()> evaluate = {};  ///< held-out figures; may be empty
};

/// How a run ended. `stopped`: by a signal, to go on later.
enum class RunEnd { finished, stopped };

/// Trains `parameters` of `model` on `source`, from a checkpoint where there is one; logs, saves, stops cleanly on a
/// signal. On many ranks each calls it, and the first one speaks and logs.
template <class Model, class Source>
RunEnd run_training(const TrainingOptions& options, const TrainingRun& run, Model& model,
                    const optim::NamedParameters& parameters, Source& source) {
  const double max_seconds = options.max_hours * 3600;
  if (!(options.learning_rate > 0))
    throw InputError("--learning-rate is ", options.learning_rate, ", expected more than 0");
  dist::Sharding* const sharding = model.sharding();
  const auto slices = sharding == nullptr ? io::whole_slices(parameters) : sharding->trainable_slices();
  optim::AdamW optimizer(slices, {.weight_decay = options.weight_decay,
                                  .groups = parameter_groups(options, parameters),
                                  .state = optim::parse_adamw_state(options.state),
                                  .seed = options.seed});
  optim::NamedParameters phased = parameters;  // what backward looks at, and what the optimizer does
  if (sharding != nullptr)
    phased.insert(phased.end(), optimizer.named_parameters().begin(), optimizer.named_parameters().end());
  train::Phases phases(phased, run.phases, max_seconds);
  const loss::LinearCrossEntropy loss{{.vocabulary_size = nn::used_vocabulary(model)}};
  train::Trainer trainer(model, loss, optimizer, source,
                         {.total_steps = run.total_steps,
                          .accumulate = options.accumulate,
                          .max_grad_norm = options.max_grad_norm,
                          .learning_rate = [&](std::int64_t step) { return phases.learning_rate(step); },
                          .optimizer_in_backward = options.optimizer_in_backward,
                          .max_bad_steps = options.max_bad_steps});

  const bool speaks = trainer.rank() == 0;
  const std::filesystem::path output = options.output;
  checkpoint::CheckpointStore store(output / "checkpoints", options.retention(run.evaluate != nullptr),
                                    train::group_of(trainer));
  train::MetricLog log;
  train::SpikeGuard spikes({.factor = options.rewind_on_spike}, log);
  train::Checkpoints checkpoints(
      store, options.save_every,
      [&] {
        return Json{{"settings", run.settings}, {"phases", phases.state()}, {train::SpikeGuard::kName, spikes.state()}};
      },
      checkpoint::parse_background(options.save_async));
  if (const auto checkpoint = find_checkpoint(options, store)) {
    checkpoints.restore(*checkpoint);
    for (const std::string& note : train::restore(trainer, *checkpoint)) {
      if (speaks) std::fprintf(stderr, "note: %s\n", note.c_str());
    }
    if (checkpoint->state.contains("phases")) phases.restore(checkpoint->state.at("phases"));
    const char* name = train::SpikeGuard::kName;
    if (checkpoint->state.contains(name)) spikes.restore(checkpoint->state.at(name));
    if (speaks) report_changed_settings(checkpoint->state.at("settings"), run.settings);
    if (speaks)
      std::fprintf(stderr, "resuming from %s (step %lld of %lld)\n", checkpoint->path.c_str(),
                   static_cast<long long>(trainer.step()), static_cast<long long>(run.total_steps));
  }

  model.set_activation_checkpointing(nn::parse_activation_checkpointing(options.checkpoint_activations));
  model.train();
  if (options.memory.report && sharding != nullptr) {
    throw InputError("--memory-report tries batches on one rank; without a launcher it says what one rank takes");
  }
  if (options.memory.report) {
    report_memory(options.memory, trainer, loss, run.phases, options.batch_size,
                  {.sequence_length = options.sequence_length,
                   .vocabulary_size = model.config().vocab_size,
                   .accumulate = options.accumulate > 1,
                   .optimizer_in_backward = options.optimizer_in_backward},
                  output / "memory.json");
  }

  std::optional<train::MetricsFile> metrics_file;
  std::optional<train::EventFileWriter> events;
  train::Console console(run.label, trainer.step(), run.total_steps, options.log_every, speaks);
  if (speaks) {
    metrics_file.emplace(output / "metrics.jsonl", trainer.step());
    events.emplace(options.tensorboard.empty() ? output / "tensorboard" : std::filesystem::path(options.tensorboard),
                   trainer.step());
    events->text("settings", "```json\n" + run.settings.dump(2) + "\n```", trainer.step());
    log.add([&](std::int64_t step, const train::Metrics& metrics) {
      metrics_file->write(step, metrics);
      for (const auto& [name, value] : metrics) events->scalar(name, value, step);
      events->flush();
    });
    log.add_notes([&](std::int64_t step, const std::string& name, const std::string& text) {
      metrics_file->note(step, name, text);
      events->text(name, text, step);
      if (name == "spike") console.say(text);
    });
  }
  log.add([&](std::int64_t step, const train::Metrics& metrics) { checkpoints.note(step, metrics); });
  spikes.load_with([&](std::int64_t step) {
    checkpoints.wait();
    auto checkpoint =
        store.load_before(step, [](const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); });
    // What has trained only since an earlier phase could not be taken back.
    if (checkpoint && checkpoint->state.at("phases").at("phase") != phases.state().at("phase")) checkpoint.reset();
    return checkpoint;
  });
  phases.on_begin([&](const train::Phase& phase, std::size_t index, std::int64_t step) {
    if (run.phases.size() == 1) return;
    std::int64_t trained = 0;
    for (const auto& [name, parameter] : parameters) trained += parameter.requires_grad() ? parameter.numel() : 0;
    const std::string line = concat("phase ", index + 1, " of ", run.phases.size(), " from step ", step, ": ",
                                    phase.name, " (", format_count(static_cast<double>(trained)), " parameters train)");
    console.say(line);
    if (events) events->text("phase", line, step);
  });
  const auto evaluate = [&] {
    const train::Metrics metrics = run.evaluate();
    std::string line = concat("step=", trainer.step());
    for (const auto& [name, value] : metrics) line += concat(" ", name, "=", value);
    console.say(line);
    return metrics;
  };

  const auto start = std::chrono::steady_clock::now();
  const std::int64_t first_step = trainer.step(), first_position = trainer.positions_seen();
  train::StopOnSignal stop;
  train::LogMetrics log_metrics(log, options.log_every);
  train::TimeLimit limit(max_seconds);
  if (run.evaluate) {
    trainer.run(stop, limit, phases, log_metrics, console, spikes, train::Evaluate(log, options.eval_every, evaluate),
                checkpoints);
  } else {
    trainer.run(stop, limit, phases, log_metrics, console, spikes, checkpoints);
  }
  model.eval();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto positions = static_cast<double>(trainer.positions_seen() - first_position);
  const std::string where = sharding == nullptr ? "" : concat(" on the first of ", trainer.group().size(), " ranks");
  console.say(concat(trainer.step() - first_step, " steps in ", format_duration(seconds), ", ",
                     format_count(seconds > 0 ? positions / seconds : 0), " tokens/s, peak memory ",
                     format_bytes(static_cast<double>(resident_peak_bytes().value_or(0))), where));
  const auto at_step = [&](const char* text, const char* rest) {
    console.say(concat(text, " at step ", trainer.step(), " of ", run.total_steps, "; ", rest));
  };
  if (trainer.step() < trainer.total_steps()) {
    at_step("stopped", "the same command goes on from there");
    return RunEnd::stopped;
  }
  if (trainer.step() < run.total_steps) at_step("--max-hours reached", "a larger one goes on from there");
  return RunEnd::finished;
}

}  // namespace ilme
