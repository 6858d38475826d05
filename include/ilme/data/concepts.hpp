/// What the stages of the loader expect of each other:
///   TokenSource  | packed_rows ->  RowSource  | batched ->  BatchSource  | prefetched ->  BatchSource
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/token_view.hpp>

namespace ilme::data {

/// A list of tokenised documents. Reading is thread-safe and copying cheap; the fingerprint changes with the content.
template <class Source>
concept TokenSource = std::copyable<Source> && requires(const Source& source, std::uint64_t i) {
  { source.document_count() } -> std::same_as<std::uint64_t>;
  { source.token_count() } -> std::same_as<std::uint64_t>;
  { source.document(i) } -> std::same_as<TokenView>;
  { source.fingerprint() } -> std::convertible_to<std::string>;
};

/// Where a row is written: three spans of sequence_length, and a list to which the lengths of the row's parts (which
/// attend within themselves only) are appended; they are positive and sum to sequence_length.
struct RowSlot {
  std::span<std::int64_t> input_ids, labels, position_ids;
  std::vector<std::int64_t>& part_lengths;
};

/// Rows that can be made in any order: `epoch(e)` plans epoch e, `fill(row, slot)` of the plan writes one of its rows
/// (thread-safe). Every epoch has the same number of rows. It has no position of its own: the batch stage does, so
/// there is one place to save. `identity()` is a JSON object of all that a saved position relies on (seed, lengths,
/// content).
template <class Rows>
concept RowSource = std::copyable<Rows> && requires(const Rows& rows, std::int64_t i, RowSlot slot) {
  { rows.sequence_length() } -> std::same_as<std::int64_t>;
  { rows.rows_per_epoch() } -> std::same_as<std::int64_t>;
  { rows.drop_last() } -> std::same_as<bool>;
  { rows.identity() } -> std::same_as<Json>;
  { rows.epoch(i) } -> std::same_as<std::shared_ptr<const typename Rows::Epoch>>;
  {rows.epoch(i)->fill(i, slot)};
};

/// Batches, one after the other. `state()` is the position after the last batch that `next()` gave; `restore()` goes
/// there, in this or another process, and throws InputError when the state is of another run.
template <class Source>
concept BatchSource = std::movable<Source> && requires(Source& source, const Source& constant, const Json& state) {
  { source.next() } -> std::same_as<std::optional<PackedBatch>>;
  { constant.state() } -> std::same_as<Json>;
  {source.restore(state)};
  { constant.batches_per_epoch() } -> std::same_as<std::int64_t>;
};

/// A batch source whose position is counted in steps of `accumulate()` batches each.
template <class Source>
concept StepBatchSource = BatchSource<Source> && requires(const Source& source) {
  { source.accumulate() } -> std::same_as<std::int64_t>;
};

/// How many of a source's batches its position counts as one step: 1 where it does not count steps.
template <BatchSource Source>
std::int64_t batches_per_step(const Source& source) {
  if constexpr (StepBatchSource<Source>) return source.accumulate();
  return 1;
}

/// A batch source that hands out the making of its next batch: `claim()` moves the position on and returns a function
/// that makes the batch, on any thread.
template <class Source>
concept ParallelBatchSource = BatchSource<Source> && requires(Source& source) {
  { (*source.claim())() } -> std::same_as<PackedBatch>;
};

}  // namespace ilme::data
