/// Batches for tests of training.
#pragma once

#include <cstdint>
#include <optional>

#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/data/batch.hpp>

namespace ilme::test {

/// Endless rows of a learnable pattern, `rows` a batch, with every third label left out when `gaps`.
class PatternSource {
 public:
  explicit PatternSource(std::int64_t rows, bool gaps = true) : rows_(rows), gaps_(gaps) {}

  std::optional<data::PackedBatch> next() {
    data::PackedBatch batch;
    batch.rows = rows_;
    batch.sequence_length = 12;
    batch.sequence_offsets.push_back(0);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto start = static_cast<std::int64_t>(random_bits(7, position_, row) % 23);
      for (std::int64_t t = 0; t < 12; ++t) {
        batch.input_ids.push_back((start + 3 * t) % 23);
        batch.position_ids.push_back(t);
        const bool counted = t < 11 && (!gaps_ || (t + row) % 3 != 0);
        batch.labels.push_back(counted ? (start + 3 * (t + 1)) % 23 : data::kIgnoredLabel);
        batch.token_count += counted;
      }
      batch.sequence_offsets.push_back((row + 1) * 12);
    }
    ++position_;
    return batch;
  }
  Json state() const { return {{"position", position_}}; }
  void restore(const Json& state) { position_ = state.at("position").get<std::int64_t>(); }
  std::int64_t batches_per_epoch() const { return 10; }

 private:
  std::int64_t rows_, position_ = 0;
  bool gaps_;
};

}  // namespace ilme::test
