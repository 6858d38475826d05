/// The training loop: composes a model, a loss, an optimizer and a source of batches.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/concepts.hpp>
#include <ilme/optim/gradient_sink.hpp>
#include <ilme/optim/gradients.hpp>
#include <ilme/optim/optimizer_in_backward.hpp>
#include <ilme/train/bad_steps.hpp>
#include <ilme/train/step_report.hpp>

namespace ilme::train {

struct TrainerOptions {
  std::int64_t total_steps = 1;
  std::int64_t accumulate = 1;                                  ///< micro-batches a step
  double max_grad_norm = 1.0;                                   ///< 0: no clipping
  std::function<double(std::int64_t step)> learning_rate = {};  ///< by step, counted from 1; optim::Schedule fits
  bool optimizer_in_backward = false;  ///< update each parameter, and free its gradient, as backward makes it; needs
                                       ///< accumulate 1 and max_grad_norm 0 (optim/optimizer_in_backward.hpp)
  std::int64_t max_bad_steps = 10;     ///< so many steps that teach nothing, one after another, end the run; 0: none do
};

/// Told of each step before it (`before_step(trainer)`; `trainer.step()` is the one before), after it, or both.
template <class C, class Trainer>
concept Callback = requires(C& callback, Trainer& trainer, const StepReport& report) {
  callback.on_step(trainer, report);
}
|| requires(C& callback, Trainer& trainer) { callback.before_step(trainer); };

/// A thin loop over `train_step`; holds references, owns only counters and the gradient sink. With a model that is
/// sharded over ranks, every rank has a trainer and a source of its own part of the data, and all take the same steps.
/// The loss of a step is the sum of token losses over all its micro-batches divided by their number of counted tokens,
/// as one large batch would have it (not a mean of means). Gradients are those of the sum; the optimizer divides them.
template <nn::CausalModel Model, loss::LossModule Loss, optim::Optimizer Optimizer, data::BatchSource Source>
class Trainer {
 public:
  Trainer(Model& model, Loss loss, Optimizer& optimizer, Source& source, TrainerOptions options)
      : model_(model),
        loss_(std::move(loss)),
        optimizer_(optimizer),
        source_(source),
        options_(std::move(options)),
        bad_steps_(options_.max_bad_steps) {
    if constexpr (nn::ShardableModel<Model>) gradients_ = model.sharding();
    if (gradients_ == nullptr) gradients_ = &sink_.emplace(tensors(optimizer.named_parameters()));
    if (options_.accumulate < 1) throw InputError("accumulate is ", options_.accumulate, ", expected 1 or more");
    if (const auto step = data::batches_per_step(source); step != 1 && step != options_.accumulate) {
      throw InputError("accumulate is ", options_.accumulate, ", but the source's steps have ", step, " batches");
    }
    if (!options_.learning_rate) throw InputError("TrainerOptions::learning_rate is not set");
    if (options_.optimizer_in_backward) check_in_backward();
    for (const auto& [name, parameter] : optimizer.named_parameters()) device_ = parameter.device();
  }

  /// One optimizer step. Throws RunError when the source has ended, and after too many steps in a row that taught
  /// nothing, with the documents of the last.
  StepReport train_step() {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<data::PackedBatch> micro_batches = take_micro_batches();
    StepReport report;
    report.data_seconds = seconds_since(start);
    report.step = ++step_;
    report.learning_rate = options_.learning_rate(step_);
    documents_.clear();
    for (const auto& batch : micro_batches) {
      documents_.insert(documents_.end(), batch.documents.begin(), batch.documents.end());
      report.loss_tokens += batch.token_count;
      report.positions += batch.rows * batch.sequence_length;
    }
    if (report.loss_tokens > 0 || on_many_ranks()) {
      options_.optimizer_in_backward ? learn_in_backward(micro_batches.front(), report) : learn(micro_batches, report);
      if (report.loss_tokens > 0) report.loss /= static_cast<double>(report.loss_tokens);
    }
    positions_seen_ += report.positions;
    report.skipped = report.loss_tokens == 0 || !std::isfinite(report.loss) || !std::isfinite(report.grad_norm);
    if (report.skipped) report.documents = documents();
    bad_steps_.count(report);
    report.seconds = seconds_since(start);
    return report;
  }

  /// Steps until the last one or a request to stop, calling each callback's `before_step(trainer)` and
  /// `on_step(trainer, report)` in order, and at the end `on_end(trainer)`, of those that have them.
  template <class... Callbacks>
  requires(Callback<Callbacks, Trainer>&&...) void run(Callbacks&&... callbacks) {
    while (!ended()) {
      (before_step(callbacks), ...);
      if (ended()) break;
      const StepReport report = train_step();
      (on_step(callbacks, report), ...);
    }
    (on_end(callbacks), ...);
  }

  /// Makes `run` return after the current step; the run can go on later. On many ranks any of them may ask, and all
  /// return after the next step that ends.
  void request_stop() noexcept { (on_many_ranks() ? stop_wanted_ : stop_requested_) = true; }
  /// Asked at the end of each step on many ranks: true on any of them is a request to stop after this very step.
  void stop_when(std::function<bool()> asked) { stop_asked_ = std::move(asked); }
  /// Makes the current step the run's last one. On many ranks all must call it at the same step.
  void finish_here() noexcept { options_.total_steps = step_; }

  std::int64_t step() const noexcept { return step_; }
  std::int64_t total_steps() const noexcept { return options_.total_steps; }
  std::int64_t positions_seen() const noexcept { return positions_seen_; }
  /// Steps of the run so far that taught nothing.
  std::int64_t skipped_steps() const noexcept { return bad_steps_.total(); }
  /// The documents that the last step's batches were made of, for people, as far as the source says: those of all
  /// ranks, which must all ask.
  std::string documents() const {
    std::string text = data::describe_documents(documents_, data::document_sources(source_));
    if constexpr (nn::ShardableModel<Model>) {
      if (!on_many_ranks()) return text;
      const std::vector<std::string> texts = group().all_gather_text(text);
      text.clear();
      for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!texts[rank].empty()) text += concat(text.empty() ? "" : "; ", "rank ", rank, ": ", texts[rank]);
      }
    }
    return text;
  }
  /// Wall time of the run so far, that of earlier processes included, counted from the trainer's making or
  /// restoring. On many ranks that of the first rank at the end of the last step.
  double seconds() const { return on_many_ranks() ? agreed_seconds_ : own_seconds(); }
  Model& model() noexcept { return model_; }
  Optimizer& optimizer() noexcept { return optimizer_; }
  optim::Gradients& gradients() noexcept { return *gradients_; }
  /// All ranks (dist::Group), of which there is one when the model is not sharded.
  const auto& group() const requires nn::ShardableModel<Model> { return nn::ranks_of(model_); }
  /// This process among them, counted from 0.
  int rank() const {
    if constexpr (nn::ShardableModel<Model>) return group().rank();
    return 0;
  }

  /// Counters and the source's place; the tensors (parameters, optimizer, generator) go into a checkpoint beside it
  /// (train/resume.hpp).
  Json state() const {
    return {{"step", step_},        {"positions_seen", positions_seen_}, {"skipped_steps", skipped_steps()},
            {"seconds", seconds()}, {"accumulate", source_steps()},      {"source", source_.state()}};
  }

  /// Takes back what `state()` gave. InputError when the run was made with other data or its steps had other batches;
  /// another accumulation of the same global batch is fine with a source that counts steps (data::BatchOptions).
  void restore(const Json& state) {
    JsonObject object(state, "trainer state");
    const auto accumulate = object.require<std::int64_t>("accumulate");
    if (accumulate != source_steps()) {
      throw InputError("the checkpoint was made with ", accumulate, " of its source's batches a step, this run takes ",
                       source_steps(), " of its own: expected the same accumulate, in the source's options too");
    }
    source_.restore(state.at("source"));
    step_ = object.require<std::int64_t>("step");
    positions_seen_ = object.require<std::int64_t>("positions_seen");
    earlier_seconds_ = agreed_seconds_ = object.get<double>("seconds", 0);
    made_ = std::chrono::steady_clock::now();
    bad_steps_.restore(object.get<std::int64_t>("skipped_steps", 0));
    if constexpr (nn::ShardableModel<Model>) {
      if (model_.sharding() != nullptr) model_.sharding()->reshard();  // its slices were written
    }
  }

 private:
  void check_in_backward() const {
    if (!optim::SingleParameterOptimizer<Optimizer>) {
      throw InputError("the optimizer in backward needs an optimizer that updates one parameter at a time");
    }
    if (options_.max_grad_norm > 0) {
      throw InputError(
          "the optimizer in backward cannot clip to a global norm, which takes all gradients together: "
          "max_grad_norm is ",
          options_.max_grad_norm, ", expected 0");
    }
    if (options_.accumulate > 1) {
      throw InputError("the optimizer in backward cannot accumulate gradients, which it frees at once: accumulate is ",
                       options_.accumulate, ", expected 1");
    }
    if (on_many_ranks()) {
      throw InputError(
          "the optimizer in backward works on one rank: many could not agree on which parameters to leave alone when a "
          "gradient is not finite");
    }
  }

  bool on_many_ranks() const {
    if constexpr (nn::ShardableModel<Model>) return group().size() > 1;
    return false;
  }

  double own_seconds() const { return earlier_seconds_ + seconds_since(made_); }

  /// Makes a step's sums those of all ranks, and agrees on what every rank must know alike.
  void sum_over_ranks(StepReport& report) {
    if constexpr (nn::ShardableModel<Model>) {
      const bool first = group().rank() == 0;
      at::Tensor sums =
          at::tensor({report.loss, static_cast<double>(report.loss_tokens), static_cast<double>(report.positions),
                      stop_wanted_ || (stop_asked_ && stop_asked_()) ? 1.0 : 0.0, first ? own_seconds() : 0.0},
                     at::kDouble);
      group().all_reduce(sums).wait();
      const double* sum = sums.const_data_ptr<double>();
      report.loss = sum[0];
      report.loss_tokens = static_cast<std::int64_t>(sum[1]);
      report.positions = static_cast<std::int64_t>(sum[2]);
      stop_requested_ = stop_requested_ || sum[3] > 0;
      agreed_seconds_ = sum[4];
    }
  }

  /// What a step takes of the source, as the source counts its position: its steps, or else its batches.
  std::int64_t source_steps() const { return options_.accumulate / data::batches_per_step(source_); }

  std::vector<data::PackedBatch> take_micro_batches() {
    std::vector<data::PackedBatch> batches;
    for (std::int64_t i = 0; i < options_.accumulate; ++i) {
      std::optional<data::PackedBatch> batch = source_.next();
      if (!batch) break;
      batches.push_back(std::move(*batch));
    }
    if (batches.empty()) {
      throw RunError("the data ended after step ", step_, " of ", options_.total_steps,
                     "; use an endless source or fewer steps");
    }
    return batches;
  }

  /// Adds one micro-batch to the gradients of the sum of token losses; returns its sum, which a GPU may still compute.
  at::Tensor backward(const data::PackedBatch& packed) {
    if (packed.token_count == 0 && !on_many_ranks()) return at::zeros({});  // other ranks wait for this one's part
    const data::Batch batch = data::collate(packed);
    const at::Tensor hidden = model_.hidden(batch);
    const ops::LossSum loss = loss_(hidden, model_.lm_head_weight(), batch.labels);
    loss.sum.backward();
    return loss.sum.detach();
  }

  /// Puts the sum of token losses and the norm into the report, and updates.
  void learn(const std::vector<data::PackedBatch>& micro_batches, StepReport& report) {
    {
      const ops::MemoryPhase phase(device_);
      std::vector<at::Tensor> losses;
      for (std::size_t i = 0; i < micro_batches.size(); ++i) {
        gradients_->set_is_last_backward(i + 1 == micro_batches.size());
        losses.push_back(backward(micro_batches[i]));
      }
      gradients_->gradients();  // the last of them are reduced
      for (const at::Tensor& loss : losses) report.loss += loss.item<double>();
      report.backward_peak_bytes = phase.peak_bytes();
      if (on_many_ranks()) sum_over_ranks(report);
      if (report.loss_tokens == 0) return gradients_->clear();
      report.grad_norm = gradients_->norm().item<double>() / static_cast<double>(report.loss_tokens);
    }
    const ops::MemoryPhase phase(device_);
    const auto tokens = static_cast<double>(report.loss_tokens);
    if (std::isfinite(report.loss) && std::isfinite(report.grad_norm)) {
      const double excess = options_.max_grad_norm > 0 ? report.grad_norm / options_.max_grad_norm : 0.0;
      optimizer_.step(gradients_->gradients(), report.learning_rate,
                      at::scalar_tensor(tokens * std::max(1.0, excess), at::kFloat));
    }
    gradients_->clear();
    report.update_peak_bytes = phase.peak_bytes();
  }

  /// The same with the optimizer in backward.
  void learn_in_backward(const data::PackedBatch& batch, StepReport& report) {
    if constexpr (optim::SingleParameterOptimizer<Optimizer>) {
      const ops::MemoryPhase phase(device_);
      const auto tokens = static_cast<double>(report.loss_tokens);
      optim::OptimizerInBackward<Optimizer> in_backward(*gradients_, optimizer_);
      in_backward.begin(report.learning_rate, at::scalar_tensor(tokens, at::kFloat));
      report.loss = backward(batch).template item<double>();
      report.grad_norm = in_backward.end() / tokens;
      report.backward_peak_bytes = report.update_peak_bytes = phase.peak_bytes();
    }
  }

  static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  static std::vector<at::Tensor> tensors(const optim::NamedParameters& parameters) {
    std::vector<at::Tensor> all;
    for (const auto& [name, tensor] : parameters) all.push_back(tensor);
    return all;
  }

  bool ended() const { return stop_requested_ || step_ >= options_.total_steps; }

  template <class C>
  void before_step(C& callback) {
    if constexpr (requires { callback.before_step(*this); }) callback.before_step(*this);
  }
  template <class C>
  void on_step(C& callback, const StepReport& report) {
    if constexpr (requires { callback.on_step(*this, report); }) callback.on_step(*this, report);
  }
  template <class C>
  void on_end(C& callback) {
    if constexpr (requires { callback.on_end(*this); }) callback.on_end(*this);
  }

  Model& model_;
  Loss loss_;
  Optimizer& optimizer_;
  Source& source_;
  TrainerOptions options_;
  std::optional<optim::GradientSink> sink_;  // where the model has none of its own
  optim::Gradients* gradients_ = nullptr;
  c10::Device device_ = c10::kCPU;
  std::int64_t step_ = 0, positions_seen_ = 0;
  BadSteps bad_steps_;
  std::vector<data::DocumentId> documents_;  // of the last step's batches
  bool stop_requested_ = false, stop_wanted_ = false;
  std::function<bool()> stop_asked_;
  double earlier_seconds_ = 0, agreed_seconds_ = 0;
  std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
};

}  // namespace ilme::train
