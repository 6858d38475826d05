/// What ilme-pretrain and ilme-finetune share: their options, and a run with everything people see around it.
#pragma once

#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/schedule.hpp>
#include <ilme/train/callbacks.hpp>
#include <ilme/train/metric_log.hpp>
#include <ilme/train/metrics_file.hpp>
#include <ilme/train/resume.hpp>
#include <ilme/train/tensorboard.hpp>
#include <ilme/train/trainer.hpp>

namespace ilme {

struct TrainingOptions {
  std::string model, output, data;
  std::int64_t steps = 0;
  double epochs = 1, max_hours = 0;
  std::int64_t batch_size = 8, sequence_length = 1024, accumulate = 1;
  double learning_rate = 3e-4, embedding_learning_rate = 0, min_learning_rate = 0, weight_decay = 0.1;
  double max_grad_norm = 1.0;
  std::int64_t warmup_steps = 0;
  std::string schedule = "cosine", dtype = "bf16", ops = "fused";
  std::int64_t save_every = 0, keep = 2, log_every = 10, eval_every = 0;
  std::uint64_t seed = 0;
  std::string resume = "auto", tensorboard;

  void add_to(CLI::App& app) {
    app.add_option("--model", model, "Model folder to start from (Hugging Face layout)")->type_name("DIR")->required();
    app.add_option("--output", output, "Folder for the result, checkpoints, TensorBoard files and metrics.jsonl")
        ->type_name("DIR")
        ->required();
    app.add_option("--steps", steps, "Optimizer steps; 0: as many as --epochs gives");
    app.add_option("--epochs", epochs, "Passes over the data, when --steps is not given");
    app.add_option("--max-hours", max_hours, "Stop (and save) after so many hours; 0: never");
    app.add_option("--batch-size", batch_size, "Rows a micro-batch");
    app.add_option("--sequence-length", sequence_length, "Tokens a row; documents are packed into rows");
    app.add_option("--accumulate", accumulate, "Micro-batches an optimizer step, weighted by their counted tokens");
    app.add_option("--learning-rate", learning_rate, "Highest learning rate");
    app.add_option("--embedding-learning-rate", embedding_learning_rate,
                   "Highest learning rate of embeddings and head; 0: the same");
    app.add_option("--warmup-steps", warmup_steps, "Steps of linear warm-up");
    app.add_option("--min-learning-rate", min_learning_rate, "Learning rate at the end of the schedule");
    app.add_option("--schedule", schedule, "cosine, linear, constant, or wsd (falls over the last fifth)")
        ->check(CLI::IsMember({"cosine", "linear", "constant", "wsd"}));
    app.add_option("--weight-decay", weight_decay, "AdamW weight decay, on matrices only");
    app.add_option("--max-grad-norm", max_grad_norm, "Clip the gradient to this global norm; 0: never");
    app.add_option("--dtype", dtype, "Compute in fp32 or bf16; bf16 keeps fp32 master weights")
        ->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--ops", ops, "fused operations, or reference: plain ATen ones to compare with")
        ->check(CLI::IsMember({"fused", "reference"}));
    app.add_option("--eval-every", eval_every, "Steps between evaluations; 0: only at the end");
    app.add_option("--save-every", save_every, "Steps between checkpoints; 0: only at the end or when stopped");
    app.add_option("--keep", keep, "Newest checkpoints to keep; 0: all");
    app.add_option("--resume", resume, "auto: go on from the newest checkpoint in --output; never; or a folder")
        ->type_name("auto|never|DIR");
    app.add_option("--log-every", log_every, "Steps between log lines and metric records")->check(CLI::PositiveNumber);
    app.add_option("--seed", seed, "Seed of data order, dropout and adapters");
    app.add_option("--tensorboard", tensorboard, "Folder of TensorBoard files; default: tensorboard/ in --output")
        ->type_name("DIR");
  }

  /// What decides the loss curve, to be stored with a checkpoint and compared on resume.
  Json settings(std::int64_t total_steps) const {
    return {{"model", model},
            {"data", data},
            {"total_steps", total_steps},
            {"learning_rate", learning_rate},
            {"embedding_learning_rate", embedding_learning_rate},
            {"min_learning_rate", min_learning_rate},
            {"warmup_steps", warmup_steps},
            {"schedule", schedule},
            {"weight_decay", weight_decay},
            {"max_grad_norm", max_grad_norm},
            {"dtype", dtype},
            {"ops", ops},
            {"seed", seed}};
  }

  std::int64_t total_steps(std::int64_t batches_per_epoch) const {
    if (steps < 0) throw InputError("--steps is ", steps, ", expected 0 or more");
    if (steps > 0) return steps;
    if (!(epochs > 0)) throw InputError("--epochs is ", epochs, ", expected more than 0");
    const double micro_batches = epochs * static_cast<double>(batches_per_epoch);
    return static_cast<std::int64_t>(std::ceil(micro_batches / static_cast<double>(accumulate)));
  }
};

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

/// Highest resident memory of this process so far, in bytes.
inline double peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;
}

/// Trains `model`'s trainable parameters on `source`, from a checkpoint where there is one; logs, saves, stops cleanly
/// on a signal. `evaluate` (may be empty) gives held-out figures. Returns whether the last step was reached.
template <class Model, class Source>
bool run_training(const TrainingOptions& options, const std::string& label, Model& model, Source& source,
                  const std::function<train::Metrics()>& evaluate) {
  const std::int64_t total_steps = options.total_steps(source.batches_per_epoch());
  const optim::Schedule schedule{optim::parse_decay(options.schedule), options.learning_rate, options.min_learning_rate,
                                 options.warmup_steps, total_steps};
  optim::AdamWOptions adamw{.weight_decay = options.weight_decay};
  if (options.embedding_learning_rate > 0) {
    const double scale = options.embedding_learning_rate / options.learning_rate;
    adamw.learning_rate_scale = [scale](const std::string& name) {
      return name == "model.embed_tokens.weight" || name == "lm_head.weight" ? scale : 1.0;
    };
  }
  optim::AdamW optimizer(optim::trainable_parameters(model), adamw);
  train::Trainer trainer(model, loss::LinearCrossEntropy{.vocabulary_size = nn::used_vocabulary(model)}, optimizer,
                         source,
                         {.total_steps = total_steps,
                          .accumulate = options.accumulate,
                          .max_grad_norm = options.max_grad_norm,
                          .learning_rate = schedule});

  const std::filesystem::path output = options.output;
  checkpoint::CheckpointStore store(output / "checkpoints", options.keep);
  const Json settings = options.settings(total_steps);
  if (const auto checkpoint = find_checkpoint(options, store)) {
    train::restore(trainer, *checkpoint);
    report_changed_settings(checkpoint->state.at("settings"), settings);
    std::fprintf(stderr, "resuming from %s (step %lld of %lld)\n", checkpoint->path.c_str(),
                 static_cast<long long>(trainer.step()), static_cast<long long>(total_steps));
  }

  train::MetricLog log;
  train::MetricsFile metrics_file(output / "metrics.jsonl", trainer.step());
  train::EventFileWriter events(
      options.tensorboard.empty() ? output / "tensorboard" : std::filesystem::path(options.tensorboard),
      trainer.step());
  events.text("settings", "```json\n" + settings.dump(2) + "\n```", trainer.step());
  train::Console console(label, trainer.step(), total_steps, options.log_every);
  log.add([&](std::int64_t step, const train::Metrics& metrics) { metrics_file.write(step, metrics); });
  log.add([&](std::int64_t step, const train::Metrics& metrics) {
    for (const auto& [name, value] : metrics) events.scalar(name, value, step);
    events.flush();
  });
  const auto evaluate_and_say = [&] {
    const train::Metrics metrics = evaluate();
    std::string line = concat("step=", trainer.step());
    for (const auto& [name, value] : metrics) line += concat(" ", name, "=", value);
    console.say(line);
    return metrics;
  };

  const auto start = std::chrono::steady_clock::now();
  const std::int64_t first_step = trainer.step(), first_position = trainer.positions_seen();
  train::StopOnSignal stop;
  train::Checkpoints checkpoints(store, options.save_every, settings, trainer.step());
  train::LogMetrics log_metrics(log, options.log_every);
  train::TimeLimit limit(options.max_hours * 3600);
  model.train();
  if (evaluate) {
    trainer.run(stop, limit, log_metrics, console, train::Evaluate(log, options.eval_every, evaluate_and_say),
                checkpoints);
  } else {
    trainer.run(stop, limit, log_metrics, console, checkpoints);
  }
  model.eval();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto positions = static_cast<double>(trainer.positions_seen() - first_position);
  std::fprintf(stderr, "%lld steps in %s, %s tokens/s, peak memory %s\n",
               static_cast<long long>(trainer.step() - first_step), format_duration(seconds).c_str(),
               format_count(seconds > 0 ? positions / seconds : 0).c_str(), format_bytes(peak_memory_bytes()).c_str());
  if (trainer.step() < total_steps) {
    std::fprintf(stderr, "stopped at step %lld of %lld; the same command goes on from there\n",
                 static_cast<long long>(trainer.step()), static_cast<long long>(total_steps));
    return false;
  }
  return true;
}

}  // namespace ilme
