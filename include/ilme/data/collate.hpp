/// Tensors of a packed batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ilme/core/error.hpp>
#include <ilme/data/batch.hpp>

namespace ilme::data {

/// A batch as the model takes it.
struct Batch {
  /// int64 [batch, sequence] each; labels[t] is the id that follows input_ids[t], or kIgnoredLabel.
  at::Tensor input_ids, labels, position_ids;
  /// Cumulative lengths of the parts that attend within themselves, over the flattened rows (PackedBatch).
  std::vector<std::int64_t> sequence_offsets;
  /// Labels that count.
  std::int64_t token_count = 0;
};

/// Copies a packed batch into CPU tensors that own their memory. Throws InputError when its parts do not fit together.
inline Batch collate(const PackedBatch& packed) {
  const auto tensor = [&](const std::vector<std::int64_t>& values, const char* name) {
    if (packed.rows < 0 || packed.sequence_length < 0 ||
        values.size() != static_cast<std::size_t>(packed.rows * packed.sequence_length)) {
      throw InputError("batch: ", name, " has ", values.size(), " values, expected ", packed.rows, " x ",
                       packed.sequence_length);
    }
    at::Tensor copy = at::empty({packed.rows, packed.sequence_length}, at::TensorOptions().dtype(at::kLong));
    std::copy(values.begin(), values.end(), copy.mutable_data_ptr<std::int64_t>());
    return copy;
  };
  return {tensor(packed.input_ids, "input_ids"), tensor(packed.labels, "labels"),
          tensor(packed.position_ids, "position_ids"), packed.sequence_offsets, packed.token_count};
}

}  // namespace ilme::data
