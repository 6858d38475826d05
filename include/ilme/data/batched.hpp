/// The stage that cuts rows into batches, for one rank of any number, and holds the loader's position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/concepts.hpp>

namespace ilme::data {

struct BatchOptions {
  /// This process and the number of processes that share the data.
  std::int64_t rank = 0, world = 1;
  /// Passes over the data, after which `next()` gives nothing; 0: endless.
  std::int64_t epochs = 0;
  /// Id in the rows that complete a last batch.
  std::int64_t padding_id = 0;
};

/// A BatchSource over a RowSource. Global batch b of an epoch is rows [b * n * world, (b + 1) * n * world); rank k
/// takes the k-th n of them, so every rank makes the same number of batches, and the position does not depend on the
/// number of ranks. Rows that the epoch does not have are padding without labels (with drop_last there are none). After
/// the last batch of an epoch comes the first of the next.
template <RowSource Rows>
class Batched {
 public:
  Batched(Rows rows, std::int64_t rows_per_batch, BatchOptions options = {})
      : rows_(std::move(rows)), rows_per_batch_(rows_per_batch), options_(options) {
    if (rows_per_batch_ < 1) throw InputError("batch size is ", rows_per_batch_, ", expected at least 1");
    if (options_.world < 1 || options_.rank < 0 || options_.rank >= options_.world) {
      throw InputError("rank ", options_.rank, " of ", options_.world, " is not a rank");
    }
    const std::int64_t global = global_batch(), total = rows_.rows_per_epoch();
    batches_ = rows_.drop_last() ? total / global : (total + global - 1) / global;
    if (batches_ == 0) {
      throw InputError("the data has ", total, " rows, too few for one batch of ", rows_per_batch_, " on ",
                       options_.world, " ranks (drop_last leaves out incomplete batches)");
    }
  }

  /// Makes one batch; holds all that it needs.
  class Claim {
   public:
    Claim(std::shared_ptr<const typename Rows::Epoch> epoch, std::int64_t first, std::int64_t rows, std::int64_t end,
          std::int64_t length, std::int64_t padding_id)
        : epoch_(std::move(epoch)), first_(first), rows_(rows), end_(end), length_(length), padding_id_(padding_id) {}

    PackedBatch operator()() const {
      PackedBatch batch;
      batch.rows = rows_;
      batch.sequence_length = length_;
      const auto length = static_cast<std::size_t>(length_), size = static_cast<std::size_t>(rows_) * length;
      batch.input_ids.resize(size);
      batch.labels.resize(size);
      batch.position_ids.resize(size);
      std::vector<std::int64_t>& offsets = batch.sequence_offsets;
      offsets.assign(1, 0);
      for (std::int64_t i = 0; i < rows_; ++i) {
        const std::size_t at = static_cast<std::size_t>(i) * length;
        RowSlot slot{std::span(batch.input_ids).subspan(at, length), std::span(batch.labels).subspan(at, length),
                     std::span(batch.position_ids).subspan(at, length), offsets};
        if (first_ + i < end_) {
          epoch_->fill(first_ + i, slot);
        } else {
          fill_padding(slot);
        }
      }
      for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
      batch.token_count =
          static_cast<std::int64_t>(size) - std::count(batch.labels.begin(), batch.labels.end(), kIgnoredLabel);
      return batch;
    }

   private:
    void fill_padding(RowSlot& slot) const {
      std::fill(slot.input_ids.begin(), slot.input_ids.end(), padding_id_);
      std::fill(slot.labels.begin(), slot.labels.end(), kIgnoredLabel);
      std::iota(slot.position_ids.begin(), slot.position_ids.end(), std::int64_t{0});
      slot.part_lengths.push_back(length_);
    }

    std::shared_ptr<const typename Rows::Epoch> epoch_;
    std::int64_t first_, rows_, end_, length_, padding_id_;
  };

  /// Moves to the next batch and returns what makes it, on any thread; nothing after the last epoch.
  std::optional<Claim> claim() {
    if (options_.epochs > 0 && epoch_ >= options_.epochs) return std::nullopt;
    if (!plan_) plan_ = rows_.epoch(epoch_);
    Claim claim(plan_, batch_ * global_batch() + options_.rank * rows_per_batch_, rows_per_batch_,
                rows_.rows_per_epoch(), rows_.sequence_length(), options_.padding_id);
    if (++batch_ == batches_) {
      batch_ = 0;
      ++epoch_;
      plan_.reset();
    }
    return claim;
  }

  std::optional<PackedBatch> next() {
    const auto claimed = claim();
    return claimed ? std::optional((*claimed)()) : std::nullopt;
  }

  /// {"epoch", "row": the first row of the next global batch, and what identifies the run}.
  Json state() const {
    Json state = identity();
    state["epoch"] = epoch_;
    state["row"] = batch_ * global_batch();
    return state;
  }

  /// Goes to a saved position. Another seed, sequence length, content or global batch size is an InputError that names
  /// both values; another number of ranks at the same global batch size is not.
  void restore(const Json& state) {
    JsonObject object(state, "loader state");
    const Json expected = identity();
    for (const auto& [key, value] : expected.items()) {
      const Json found = object.raw(key);
      if (found != value) {
        throw InputError("loader state: ", key, " is ", ilme::detail::short_dump(found), ", this run's is ",
                         ilme::detail::short_dump(value));
      }
    }
    const auto epoch = object.require<std::int64_t>("epoch"), row = object.require<std::int64_t>("row");
    if (epoch < 0 || row < 0 || row % global_batch() != 0 || row / global_batch() >= batches_) {
      throw InputError("loader state: epoch ", epoch, ", row ", row, " is not the start of one of the ", batches_,
                       " batches of ", global_batch(), " rows");
    }
    if (epoch != epoch_) plan_.reset();
    epoch_ = epoch;
    batch_ = row / global_batch();
  }

  std::int64_t batches_per_epoch() const noexcept { return batches_; }

 private:
  std::int64_t global_batch() const noexcept { return rows_per_batch_ * options_.world; }
  Json identity() const {
    Json identity = rows_.identity();
    identity["global_batch_size"] = global_batch();
    return identity;
  }

  Rows rows_;
  std::int64_t rows_per_batch_;
  BatchOptions options_;
  std::int64_t batches_ = 0;
  std::int64_t epoch_ = 0, batch_ = 0;  // of the next batch
  std::shared_ptr<const typename Rows::Epoch> plan_;
};

struct BatchStage {
  std::int64_t rows_per_batch;
  BatchOptions options;
};

/// `rows | batched(8, {.rank = rank, .world = world})`: batches of 8 rows for each rank.
inline BatchStage batched(std::int64_t rows_per_batch, BatchOptions options = {}) { return {rows_per_batch, options}; }

template <RowSource Rows>
Batched<Rows> operator|(Rows rows, const BatchStage& stage) {
  return Batched<Rows>(std::move(rows), stage.rows_per_batch, stage.options);
}

}  // namespace ilme::data
