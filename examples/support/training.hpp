/// What ilme-pretrain and ilme-finetune share: their options, and a run with everything people see around it.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/checkpoint/model_export.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/dist/connect.hpp>
#include <ilme/dist/load_model.hpp>
#include <ilme/dist/sharding_options.hpp>
#include <ilme/dist/world.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/nn/recompute.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/schedule.hpp>
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
#include "support/model_output.hpp"
#include "support/option_files.hpp"

namespace ilme {

struct TrainingOptions : ModelOutput {
  std::string model, output;
  std::vector<std::string> data;
  std::int64_t steps = 0;
  double epochs = 1, max_hours = 0;
  std::int64_t batch_size = 8, sequence_length = 1024, accumulate = 1;
  double learning_rate = 3e-4, embedding_learning_rate = 0, min_learning_rate = 0, weight_decay = 0.1;
  double max_grad_norm = 1.0;
  std::int64_t warmup_steps = 0;
  std::vector<std::string> learning_rates, weight_decays;  // PATTERN=X
  std::string schedule = "cosine", dtype = "bf16", state = "masters", ops = "fused";
  std::int64_t save_every = 0, keep = 2, log_every = 10, eval_every = 0;
  std::uint64_t seed = 0;
  std::int64_t max_bad_steps = 10;
  double rewind_on_spike = 0;
  std::string resume = "auto", save_async = "auto", keep_best, tensorboard;
  bool optimizer_in_backward = false;
  std::string checkpoint_activations = "none";
  std::string shard = "full";
  double rank_timeout = 60;
  MemoryOptions memory;

  void add_to(CLI::App& app) {
    app.add_option("--model", model, "Model folder to start from (Hugging Face layout)")->type_name("DIR")->required();
    app.add_option("--output", output, "Folder for the result, checkpoints, TensorBoard files and metrics.jsonl")
        ->type_name("DIR")
        ->required();
    app.add_option("--steps", steps, "Optimizer steps; 0: as many as --epochs gives");
    app.add_option("--epochs", epochs, "Passes over the data, when --steps is not given");
    app.add_option("--max-hours", max_hours,
                   "End the run after so many hours in all, evaluation and earlier processes included, with the "
                   "schedule decayed by then and the result written; 0: no limit");
    app.add_option("--batch-size", batch_size, "Rows a micro-batch, on each rank");
    app.add_option("--sequence-length", sequence_length, "Tokens a row; documents are packed into rows");
    app.add_option("--accumulate", accumulate, "Micro-batches an optimizer step, weighted by their counted tokens");
    app.add_option("--learning-rate", learning_rate, "Highest learning rate");
    app.add_option("--embedding-learning-rate", embedding_learning_rate,
                   "Highest learning rate of embeddings and head; 0: the same");
    app.add_option("--learning-rate-for", learning_rates,
                   "Highest learning rate of the parameters whose names match a pattern, such as *norm* or "
                   "model.layers.0.*; repeatable, the first that matches counts")
        ->type_name("PATTERN=X");
    app.add_option("--warmup-steps", warmup_steps, "Steps of linear warm-up (of each phase, where there are two)");
    app.add_option("--min-learning-rate", min_learning_rate, "Learning rate at the end of the schedule");
    app.add_option("--schedule", schedule, "cosine, linear, constant, or wsd (falls over the last fifth)")
        ->check(CLI::IsMember({"cosine", "linear", "constant", "wsd"}));
    app.add_option("--weight-decay", weight_decay, "AdamW weight decay, on matrices only");
    app.add_option("--weight-decay-for", weight_decays,
                   "Weight decay of the parameters whose names match a pattern, vectors too; repeatable, as above")
        ->type_name("PATTERN=X");
    app.add_option("--max-grad-norm", max_grad_norm, "Clip the gradient to this global norm; 0: never");
    app.add_option("--dtype", dtype, "Weights and computing in fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option(
           "--state", state,
           "What the optimizer keeps of bf16 weights that train. masters: an fp32 copy and two fp32 moments, 12 "
           "bytes each; bf16: a bf16 and an fp32 moment, 6 bytes, with stochastic rounding. LoRA adapters and "
           "--dtype fp32 are fp32 themselves and have fp32 moments either way")
        ->check(CLI::IsMember({"masters", "bf16"}));
    app.add_flag(
        "--optimizer-in-backward", optimizer_in_backward,
        "Update each parameter and free its gradient as soon as backward has made it: no memory for gradients. "
        "Needs --max-grad-norm 0 and --accumulate 1. A gradient that is not finite leaves its parameter alone, "
        "but what was updated before it in the step stays so");
    app.add_option(
           "--checkpoint-activations", checkpoint_activations,
           "What is kept of a step for its backward. none: all that it needs; selective: norms, SwiGLU and attention "
           "are computed again, a third less memory at nearly the same speed; block: only each block's input is kept, "
           "least memory, about a fifth slower")
        ->check(CLI::IsMember({"none", "block", "selective"}));
    app.add_option(
           "--shard", shard,
           "On many ranks (torchrun --no-python, mpirun, srun, SageMaker), how they share the model. full: each holds "
           "its part of weights, gradients and optimizer; hybrid: the ranks of a host share a copy; none: a copy each")
        ->check(CLI::IsMember({"full", "hybrid", "none"}));
    app.add_option("--rank-timeout", rank_timeout,
                   "Seconds after which a rank that has died or hangs ends all others, which name it")
        ->check(CLI::PositiveNumber);
    app.add_option("--ops", ops, "fused operations, or reference: plain ATen ones to compare with")
        ->check(CLI::IsMember({"fused", "reference"}));
    app.add_option("--eval-every", eval_every, "Steps between evaluations; 0: only at the end");
    app.add_option("--save-every", save_every, "Steps between checkpoints; 0: only at the end or when stopped");
    app.add_option("--keep", keep, "Newest checkpoints to keep; 0: all");
    app.add_option("--keep-best", keep_best,
                   "Keep the checkpoint with the best value of a metric as well, such as eval_bits_per_byte; saves "
                   "whenever it gets better. The lowest is the best, the highest with max:METRIC")
        ->type_name("METRIC");
    app.add_option("--save-async", save_async,
                   "Write checkpoints from a copy while training goes on: auto: where the memory for the copy is free "
                   "(as much as model and optimizer state take); always; never")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    app.add_option("--max-bad-steps", max_bad_steps,
                   "End the run after so many steps in a row without a finite loss and gradient norm; each is skipped, "
                   "with a line that names its documents. 0: never end it");
    app.add_option("--rewind-on-spike", rewind_on_spike,
                   "When the loss is more than so many times the median of the last 32 steps, such as 2, or not finite "
                   "in 3 steps in a row, go back to the last checkpoint before (--save-every) and on with the data "
                   "after, at most 8 times; 0: never");
    app.add_option("--resume", resume, "auto: go on from the newest checkpoint in --output; never; or a folder")
        ->type_name("auto|never|DIR");
    app.add_option("--log-every", log_every, "Steps between log lines and metric records")->check(CLI::PositiveNumber);
    app.add_option("--seed", seed, "Seed of data order, dropout and adapters");
    app.add_option("--tensorboard", tensorboard, "Folder of TensorBoard files; default: tensorboard/ in --output")
        ->type_name("DIR");
    memory.add_to(app);
    ModelOutput::add_to(app);
  }

  /// What decides the loss curve, to be stored with a checkpoint and compared on resume.
  Json settings(std::int64_t total_steps) const {
    return {{"model", model},
            {"data", data.size() == 1 ? Json(data.front()) : Json(data)},
            {"total_steps", total_steps},
            {"learning_rate", learning_rate},
            {"embedding_learning_rate", embedding_learning_rate},
            {"min_learning_rate", min_learning_rate},
            {"learning_rate_for", learning_rates},
            {"warmup_steps", warmup_steps},
            {"schedule", schedule},
            {"weight_decay", weight_decay},
            {"weight_decay_for", weight_decays},
            {"max_grad_norm", max_grad_norm},
            {"dtype", dtype},
            {"state", state},
            {"ops", ops},
            {"seed", seed}};
  }

  checkpoint::Retention retention(bool evaluates) const {
    const bool highest = keep_best.starts_with("max:");
    const std::string metric = highest ? keep_best.substr(4) : keep_best;
    if (metric.starts_with("eval_") && !evaluates) {
      throw InputError("--keep-best ", keep_best, ": this run does not evaluate; expected --eval-data as well");
    }
    return {.keep_last = keep, .keep_best = metric, .higher_is_better = highest};
  }

  /// A phase's schedule: warm-up and decay over so many steps.
  optim::Schedule schedule_over(std::int64_t phase_steps) const {
    return {optim::parse_decay(schedule), learning_rate, min_learning_rate, std::min(warmup_steps, phase_steps),
            phase_steps};
  }

  data::BatchOptions batches(const dist::World& world) const {
    return {.rank = world.rank, .world = world.size, .accumulate = accumulate};
  }

  std::int64_t total_steps(std::int64_t batches_per_epoch) const {
    if (steps < 0) throw InputError("--steps is ", steps, ", expected 0 or more");
    if (accumulate < 1) throw InputError("--accumulate is ", accumulate, ", expected 1 or more");
    if (steps > 0) return steps;
    if (!(epochs > 0)) throw InputError("--epochs is ", epochs, ", expected more than 0");
    const double micro_batches = epochs * static_cast<double>(batches_per_epoch);
    return static_cast<std::int64_t>(std::ceil(micro_batches / static_cast<double>(accumulate)));
  }
};

/// The patterns that match the token embedding and the head among these parameters (one of them when they are tied).
inline std::vector<std::string> embedding_patterns(const optim::NamedParameters& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters) {
    if (name == "model.embed_tokens.weight" || name == "lm_head.weight") names.push_back(name);
  }
  return names;
}

/// The groups of --learning-rate-for, --weight-decay-for and --embedding-learning-rate, in this order.
inline std::vector<optim::ParameterGroup> parameter_groups(const TrainingOptions& options,
                                                           const optim::NamedParameters& parameters) {
  std::vector<optim::ParameterGroup> groups;
  const auto add = [&](const std::vector<std::string>& texts, const char* option, auto&& set) {
    for (const std::string& text : texts) {
      const std::size_t equals = text.rfind('=');
      double value = -1;
      const char* end = text.data() + text.size();
      if (equals != std::string::npos && equals > 0) {
        const auto result = std::from_chars(text.data() + equals + 1, end, value);
        if (result.ec != std::errc() || result.ptr != end) value = -1;
      }
      if (!(value >= 0)) {
        throw InputError(option, " ", text, ": expected PATTERN=X with a number X of 0 or more, such as *norm*=1e-4");
      }
      groups.push_back({.pattern = text.substr(0, equals)});
      set(groups.back(), value);
    }
  };
  add(options.learning_rates, "--learning-rate-for",
      [&](optim::ParameterGroup& group, double value) { group.learning_rate_scale = value / options.learning_rate; });
  add(options.weight_decays, "--weight-decay-for",
      [](optim::ParameterGroup& group, double value) { group.weight_decay = value; });
  if (options.embedding_learning_rate > 0) {
    const auto patterns = embedding_patterns(parameters);
    if (patterns.empty()) {
      throw InputError(
          "--embedding-learning-rate: neither the embeddings nor the head are trained in this run, "
          "expected --lora-train-embeddings or --full with it");
    }
    for (const std::string& pattern : patterns) {
      groups.push_back(
          {.pattern = pattern, .learning_rate_scale = options.embedding_learning_rate / options.learning_rate});
    }
  }
  return groups;
}

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

/// The ranks that a launcher's environment describes, or this process alone. The ranks of a host share its cores.
inline dist::World connect(const TrainingOptions& options) {
  dist::WorldOptions ranks;
  ranks.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.rank_timeout * 1000));
  ranks.report = [print = ranks.report](const std::string& line) {
    detail::write_job_failure(line);
    print(line);
  };
  const dist::World world = dist::connect(ranks);
  if (world.local_size > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(std::max(1, at::get_num_threads() / world.local_size));
  }
  return world;
}

/// The model of options.model, whole on one rank, or sharded over those of `world`. `prepare(model)` may attach
/// adapters and freeze parameters.
template <class Model, class Prepare>
std::shared_ptr<Model> load_for_training(const TrainingOptions& options, dist::World& world, Prepare&& prepare) {
  const at::ScalarType dtype = hf::parse_dtype(options.dtype);
  if (world.size > 1) {
    return dist::load_model<Model>(options.model, dtype, dist::make_mesh(world, dist::parse_shard_kind(options.shard)),
                                   {}, prepare);
  }
  auto model = hf::load_model<Model>(options.model, dtype);
  prepare(*model);
  return model;
}

/// The parameters of a trained model whose names `wanted` accepts, whole; called by all ranks.
template <class Model, class Wanted>
io::NamedTensors whole_parameters(Model& model, Wanted&& wanted) {
  io::NamedTensors tensors;
  if (dist::Sharding* sharding = model.sharding()) {
    sharding->for_each_parameter([&](const std::string& name, const at::Tensor& whole) {
      if (wanted(name)) tensors.emplace_back(name, whole.detach().cpu().clone());
    });
  } else {
    for (const auto& item : model.named_parameters()) {
      if (wanted(item.key())) tensors.emplace_back(item.key(), item.value());
    }
  }
  return tensors;
}

/// Writes a trained model to options.output; called by all ranks.
template <class Model>
void save_model(const TrainingOptions& options, Model& model) {
  const at::ScalarType dtype = hf::parse_dtype(options.dtype);
  const hf::SaveOptions save{.source = options.model, .max_shard_size = options.max_shard_bytes()};
  int rank = 0;
  if (dist::Sharding* sharding = model.sharding()) {
    rank = sharding->mesh().all.rank();
    checkpoint::save_model(sharding->slices(), model.config(), options.output, dtype, options.model,
                           sharding->mesh().all, save);
  } else {
    hf::save_model(model, options.output, dtype, options.model, save);
  }
  if (rank == 0) std::fprintf(stderr, "model written to %s\n", options.output.c_str());
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
