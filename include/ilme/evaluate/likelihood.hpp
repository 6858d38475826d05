/// Log-likelihoods of parts of sequences, many sequences in one forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/data/batch.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/ops/token_losses.hpp>

namespace ilme::evaluate {

/// Packs sequences into batches of up to `tokens_at_once` tokens and sums, by slot, the negative log-likelihood
/// (natural log) of the ids that count. A sequence is never cut, so one that is longer makes a batch of its own. With a
/// model that is sharded over ranks (dist::FullySharded) all of them add the same sequences and take turns with the
/// batches.
template <nn::CausalModel Model>
class LikelihoodScorer {
 public:
  LikelihoodScorer(Model& model, std::int64_t tokens_at_once) : model_(model), tokens_at_once_(tokens_at_once) {}

  /// Adds to slot `slot` the ids from index `first` (1 or more) on, each given all ids before it.
  void add(std::span<const std::int64_t> ids, std::int64_t first, std::size_t slot) {
    const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
    if (own_sums_.size() <= slot) own_sums_.resize(slot + 1);
    if (inputs < first) return;
    if (static_cast<std::int64_t>(batch_.input_ids.size()) + inputs > tokens_at_once_) close_batch();
    for (std::int64_t i = 0; i < inputs; ++i) {
      batch_.input_ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch_.position_ids.push_back(i);
      batch_.labels.push_back(i + 1 >= first ? ids[static_cast<std::size_t>(i + 1)] : data::kIgnoredLabel);
    }
    batch_.sequence_offsets.push_back(static_cast<std::int64_t>(batch_.input_ids.size()));
    batch_slots_.push_back(slot);
  }

  /// Runs the model over what has been added; `sums()` is complete then.
  void flush() {
    close_batch();
    if (!waiting_.empty()) run_waiting();
    sums_ = own_sums_;
    if constexpr (nn::ShardableModel<Model>) {
      if (ranks() == 1 || sums_.empty()) return;
      const at::Tensor all = at::tensor(own_sums_, at::kDouble);
      nn::ranks_of(model_).all_reduce(all).wait();
      sums_.assign(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
    }
  }

  /// One sum a slot.
  const std::vector<double>& sums() const noexcept { return sums_; }

 private:
  static constexpr bool kShardable = requires(Model & model) { model.sharding()->mesh().all.size(); };

  struct Waiting {
    data::PackedBatch batch;
    std::vector<std::size_t> slots;  // of its sequences
  };

  std::size_t ranks() const {
    if constexpr (nn::ShardableModel<Model>) return static_cast<std::size_t>(nn::ranks_of(model_).size());
    return 1;
  }
  std::size_t rank() const {
    if constexpr (nn::ShardableModel<Model>) return static_cast<std::size_t>(nn::ranks_of(model_).rank());
    return 0;
  }

  void close_batch() {
    if (batch_slots_.empty()) return;
    batch_.rows = 1;
    batch_.sequence_length = static_cast<std::int64_t>(batch_.input_ids.size());
    batch_.sequence_offsets.insert(batch_.sequence_offsets.begin(), 0);
    waiting_.push_back({std::exchange(batch_, {}), std::exchange(batch_slots_, {})});
    if (waiting_.size() == ranks()) run_waiting();
  }

  /// Each rank takes one of the batches; one without computes another's along, for the ranks gather weights together.
  void run_waiting() {
    const c10::NoGradGuard no_gradient;
    const bool own = rank() < waiting_.size();
    const Waiting& mine = waiting_[own ? rank() : 0];
    const data::Batch batch = data::collate(mine.batch);
    const at::Tensor losses =
        ops::token_losses(model_.hidden(batch), model_.lm_head_weight(), batch.labels, nn::used_vocabulary(model_))
            .to(at::kCPU, at::kDouble);
    const double* loss = losses.template const_data_ptr<double>();
    const std::vector<std::int64_t>& offsets = mine.batch.sequence_offsets;
    for (std::size_t s = 0; own && s < mine.slots.size(); ++s) {
      for (std::int64_t i = offsets[s]; i < offsets[s + 1]; ++i) own_sums_[mine.slots[s]] += loss[i];
    }
    waiting_.clear();
  }

  Model& model_;
  std::int64_t tokens_at_once_;
  data::PackedBatch batch_;
  std::vector<std::size_t> batch_slots_;  // of the sequences in batch_
  std::vector<Waiting> waiting_;
  std::vector<double> own_sums_, sums_;  // of this rank's batches, and of all
};

}  // namespace ilme::evaluate
