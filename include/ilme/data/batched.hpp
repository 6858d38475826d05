/// The stage that cuts rows into batches, for one rank of any number, and holds the loader's position.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/concepts.hpp>
#include <ilme/data/document_sources.hpp>

namespace ilme::data {

struct BatchOptions {
  /// This process and the number of processes that share the data.
  std::int64_t rank = 0, world = 1;
  /// Batches (micro-batches) of each rank that make a step of the optimizer together: the trainer's `accumulate`.
  std::int64_t accumulate = 1;
  /// Passes over the data, after which `next()` gives nothing; 0: endless.
  std::int64_t epochs = 0;
  /// Id in the rows that complete a last batch.
  std::int64_t padding_id = 0;
};

/// A BatchSource over a RowSource. With n rows a batch, step s of an epoch is the global batch of g = n * world *
/// accumulate rows from s * g on, and rank k's batch m of it is the n rows from (m * world + k) * n on among them. So
/// every rank makes the same number of batches, and the steps are the same for every split of g into rows, ranks and
/// accumulation. Rows that the epoch does not have are padding without labels (with drop_last there are none): an epoch
/// is whole steps. After the last batch of an epoch comes the first of the next.
///
/// A position is counted in rows, so a state between two steps is for any split of the same g. One in the middle of a
/// step is for splits with as many rows a batch over all ranks (n * world), and is restored within that step.
template <RowSource Rows>
class Batched {
 public:
  Batched(Rows rows, std::int64_t rows_per_batch, BatchOptions options = {})
      : rows_(std::move(rows)), rows_per_batch_(rows_per_batch), options_(options) {
    if (rows_per_batch_ < 1) throw InputError("batch size is ", rows_per_batch_, ", expected at least 1");
    if (options_.world < 1 || options_.rank < 0 || options_.rank >= options_.world) {
      throw InputError("rank ", options_.rank, " of ", options_.world, " is not a rank");
    }
    if (options_.accumulate < 1) throw InputError("accumulate is ", options_.accumulate, ", expected at least 1");
    const std::int64_t step = batch_rows() * options_.accumulate, total = rows_.rows_per_epoch();
    batches_ = (rows_.drop_last() ? total / step : (total + step - 1) / step) * options_.accumulate;
    if (batches_ == 0) {
      throw InputError(
          "the data has ", total, " rows, too few for one batch of ", rows_per_batch_, " on ", options_.world, " ranks",
          options_.accumulate > 1 ? concat(", accumulated ", options_.accumulate, " times") : std::string(),
          " (drop_last leaves out incomplete batches)");
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
      batch.sequence_offsets.assign(1, 0);
      for (std::int64_t i = 0; i < rows_; ++i) {
        const std::size_t at = static_cast<std::size_t>(i) * length;
        RowSlot slot(std::span(batch.input_ids).subspan(at, length), std::span(batch.labels).subspan(at, length),
                     std::span(batch.position_ids).subspan(at, length), batch.sequence_offsets, batch.documents);
        if (first_ + i < end_) {
          epoch_->fill(first_ + i, slot);
        } else {
          slot.pad(0, padding_id_);
        }
      }
      batch.token_count =
          static_cast<std::int64_t>(size) - std::count(batch.labels.begin(), batch.labels.end(), kIgnoredLabel);
      return batch;
    }

   private:
    std::shared_ptr<const typename Rows::Epoch> epoch_;
    std::int64_t first_, rows_, end_, length_, padding_id_;
  };

  /// Moves to the next batch and returns what makes it, on any thread; nothing after the last epoch.
  std::optional<Claim> claim() {
    if (options_.epochs > 0 && epoch_ >= options_.epochs) return std::nullopt;
    if (!plan_) plan_ = rows_.epoch(epoch_);
    Claim claim(plan_, batch_ * batch_rows() + options_.rank * rows_per_batch_, rows_per_batch_, rows_.rows_per_epoch(),
                rows_.sequence_length(), options_.padding_id);
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

  /// {"epoch", "row": the first row of the next batch, over all ranks, and what identifies the run}.
  Json state() const {
    Json state = identity();
    state["epoch"] = epoch_;
    state["row"] = batch_ * batch_rows();
    return state;
  }

  /// Goes to a saved position. Another seed, sequence length, content or global batch size (rows of a step) is an
  /// InputError that names both values; another number of ranks or accumulation at the same global batch size is not.
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
    if (epoch < 0 || row < 0 || row % batch_rows() != 0 || row / batch_rows() >= batches_) {
      throw InputError("loader state: epoch ", epoch, ", row ", row, " is not the start of one of the ", batches_,
                       " batches of ", batch_rows(), " rows");
    }
    if (epoch != epoch_) plan_.reset();
    epoch_ = epoch;
    batch_ = row / batch_rows();
  }

  /// Of this rank: a multiple of `accumulate()`.
  std::int64_t batches_per_epoch() const noexcept { return batches_; }
  std::int64_t accumulate() const noexcept { return options_.accumulate; }
  std::vector<DocumentSource> document_sources() const { return rows_.document_sources(); }

 private:
  std::int64_t batch_rows() const noexcept { return rows_per_batch_ * options_.world; }  // of all ranks' batches
  Json identity() const {
    Json identity = rows_.identity();
    identity["global_batch_size"] = batch_rows() * options_.accumulate;
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

/// `rows | batched(8, {.rank = rank, .world = world, .accumulate = 4})`: batches of 8 rows for each rank, 4 a step.
inline BatchStage batched(std::int64_t rows_per_batch, BatchOptions options = {}) { return {rows_per_batch, options}; }

template <RowSource Rows>
Batched<Rows> operator|(Rows rows, const BatchStage& stage) {
  return Batched<Rows>(std::move(rows), stage.rows_per_batch, stage.options);
}

}  // namespace ilme::data
