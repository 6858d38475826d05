/// The options that ilme-pretrain and ilme-finetune share.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/dist/world.hpp>
#include <ilme/optim/parameter_group.hpp>
#include <ilme/optim/schedule.hpp>

#include "support/memory_report.hpp"
#include "support/model_output.hpp"

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

}  // namespace ilme
