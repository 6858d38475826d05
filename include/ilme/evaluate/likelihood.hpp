/// Log-likelihoods of parts of sequences, many sequences in one forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/data/batch.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/ops/token_losses.hpp>

namespace ilme::evaluate {

/// Packs sequences into batches of up to `tokens_at_once` tokens and sums, by slot, the negative log-likelihood
/// (natural log) of the ids that count. A sequence is never cut, so one that is longer makes a batch of its own.
template <nn::CausalModel Model>
class LikelihoodScorer {
 public:
  LikelihoodScorer(Model& model, std::int64_t tokens_at_once) : model_(model), tokens_at_once_(tokens_at_once) {}

  /// Adds to slot `slot` the ids from index `first` (1 or more) on, each given all ids before it.
  void add(std::span<const std::int64_t> ids, std::int64_t first, std::size_t slot) {
    const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
    if (sums_.size() <= slot) sums_.resize(slot + 1);
    if (inputs < first) return;
    if (static_cast<std::int64_t>(batch_.input_ids.size()) + inputs > tokens_at_once_) flush();
    for (std::int64_t i = 0; i < inputs; ++i) {
      batch_.input_ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch_.position_ids.push_back(i);
      batch_.labels.push_back(i + 1 >= first ? ids[static_cast<std::size_t>(i + 1)] : data::kIgnoredLabel);
    }
    batch_.sequence_offsets.push_back(static_cast<std::int64_t>(batch_.input_ids.size()));
    slots_.push_back(slot);
  }

  /// Runs the model over what has been added; `sums()` is complete then.
  void flush() {
    if (slots_.empty()) return;
    const c10::NoGradGuard no_gradient;
    batch_.rows = 1;
    batch_.sequence_length = static_cast<std::int64_t>(batch_.input_ids.size());
    batch_.sequence_offsets.insert(batch_.sequence_offsets.begin(), 0);
    const data::Batch batch = data::collate(batch_);
    const at::Tensor losses =
        ops::token_losses(model_.hidden(batch), model_.lm_head_weight(), batch.labels, nn::used_vocabulary(model_))
            .to(at::kCPU, at::kDouble);
    const double* loss = losses.template const_data_ptr<double>();
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      for (std::int64_t i = batch_.sequence_offsets[s]; i < batch_.sequence_offsets[s + 1]; ++i) {
        sums_[slots_[s]] += loss[i];
      }
    }
    batch_ = {};
    slots_.clear();
  }

  /// One sum a slot.
  const std::vector<double>& sums() const noexcept { return sums_; }

 private:
  Model& model_;
  std::int64_t tokens_at_once_;
  data::PackedBatch batch_;
  std::vector<std::size_t> slots_;  // of the sequences in batch_
  std::vector<double> sums_;
};

}  // namespace ilme::evaluate
