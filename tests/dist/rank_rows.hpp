/// One rank's rows of batches that all ranks share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "support/pattern_source.hpp"

namespace ilme::test {

/// The batches of PatternSource(rows), cut into `accumulate` micro-batches for each of `world` ranks.
class RankRows {
 public:
  RankRows(std::int64_t rows, std::int64_t rank, std::int64_t world, std::int64_t accumulate = 1)
      : inner_(rows), rows_(rows / (world * accumulate)), rank_(rank), world_(world), accumulate_(accumulate) {}

  std::optional<data::PackedBatch> next() {
    if (micro_ == 0) whole_ = *inner_.next();
    const std::int64_t first = (micro_ * world_ + rank_) * rows_, length = whole_.sequence_length;
    micro_ = (micro_ + 1) % accumulate_;
    const auto cut = [&](const std::vector<std::int64_t>& values) {
      return std::vector<std::int64_t>(values.begin() + first * length, values.begin() + (first + rows_) * length);
    };
    data::PackedBatch batch;
    batch.rows = rows_;
    batch.sequence_length = length;
    batch.input_ids = cut(whole_.input_ids);
    batch.labels = cut(whole_.labels);
    batch.position_ids = cut(whole_.position_ids);
    for (std::int64_t row = 0; row <= rows_; ++row) batch.sequence_offsets.push_back(row * length);
    for (const std::int64_t label : batch.labels) batch.token_count += label != data::kIgnoredLabel;
    return batch;
  }
  Json state() const { return inner_.state(); }
  void restore(const Json& state) { inner_.restore(state); }
  std::int64_t batches_per_epoch() const { return inner_.batches_per_epoch() * accumulate_; }

 private:
  PatternSource inner_;
  std::int64_t rows_, rank_, world_, accumulate_, micro_ = 0;
  data::PackedBatch whole_;
};

}  // namespace ilme::test
