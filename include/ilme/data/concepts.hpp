/// What the stages of the loader expect of each other:
///   TokenSource  | packed_rows ->  RowSource  | batched ->  BatchSource  | prefetched ->  BatchSource
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/document_sources.hpp>
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

/// Where a row is written: input_ids and labels into spans of sequence_length, part by part; each part, which attends
/// within itself only, is ended with `add_part`.
class RowSlot {
 public:
  /// `offsets` is not empty and ends with the offset at which the row begins.
  RowSlot(std::span<std::int64_t> ids, std::span<std::int64_t> row_labels, std::span<std::int64_t> positions,
          std::vector<std::int64_t>& offsets, std::vector<DocumentId>& documents)
      : input_ids(ids), labels(row_labels), position_ids_(positions), offsets_(offsets), documents_(documents) {}

  /// The part of positions [first, first + count), which continues the one before; count is at least 1. Writes its
  /// position ids. `document.source` counts from the first source of whoever fills the row.
  void add_part(std::size_t first, std::size_t count, DocumentId document = {}) {
    const auto positions = position_ids_.subspan(first, count);
    std::iota(positions.begin(), positions.end(), std::int64_t{0});
    offsets_.push_back(offsets_.back() + static_cast<std::int64_t>(count));
    if (document.source >= 0) document.source += first_source;
    documents_.push_back(document);
  }

  /// Makes the rest of the row, from `first` on, padding without labels.
  void pad(std::size_t first, std::int64_t padding_id) {
    if (first == input_ids.size()) return;
    std::fill(input_ids.begin() + static_cast<std::ptrdiff_t>(first), input_ids.end(), padding_id);
    std::fill(labels.begin() + static_cast<std::ptrdiff_t>(first), labels.end(), kIgnoredLabel);
    add_part(first, input_ids.size() - first);
  }

  std::span<std::int64_t> input_ids, labels;
  std::int64_t first_source = 0;  ///< number of the filler's first source among the loader's

 private:
  std::span<std::int64_t> position_ids_;
  std::vector<std::int64_t>& offsets_;
  std::vector<DocumentId>& documents_;
};

/// Rows that can be made in any order: `epoch(e)` plans epoch e, `fill(row, slot)` of the plan writes one of its rows
/// (thread-safe). Every epoch has the same number of rows. It has no position of its own: the batch stage does, so
/// there is one place to save. `identity()` is a JSON object of all that a saved position relies on (seed, lengths,
/// content). `document_sources()` says what the document ids' sources are.
template <class Rows>
concept RowSource = std::copyable<Rows> && requires(const Rows& rows, std::int64_t i, RowSlot slot) {
  { rows.sequence_length() } -> std::same_as<std::int64_t>;
  { rows.rows_per_epoch() } -> std::same_as<std::int64_t>;
  { rows.drop_last() } -> std::same_as<bool>;
  { rows.identity() } -> std::same_as<Json>;
  { rows.document_sources() } -> std::same_as<std::vector<DocumentSource>>;
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

/// What the sources of a loader's document ids are; empty where it does not say.
template <BatchSource Source>
std::vector<DocumentSource> document_sources(const Source& source) {
  if constexpr (requires { source.document_sources(); }) return source.document_sources();
  return {};
}

/// A batch source that hands out the making of its next batch: `claim()` moves the position on and returns a function
/// that makes the batch, on any thread.
template <class Source>
concept ParallelBatchSource = BatchSource<Source> && requires(Source& source) {
  { (*source.claim())() } -> std::same_as<PackedBatch>;
};

}  // namespace ilme::data
