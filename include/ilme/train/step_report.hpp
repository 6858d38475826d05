/// The figures of one optimizer step.
#pragma once

#include <cstdint>
#include <string>

namespace ilme::train {

/// What one optimizer step did, on all ranks together.
struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;        ///< mean over the step's counted tokens, before the update
  double grad_norm = 0;   ///< before clipping
  double learning_rate = 0;
  std::int64_t loss_tokens = 0;  ///< tokens whose label counted
  std::int64_t positions = 0;    ///< positions computed, padding included
  double seconds = 0;
  double data_seconds = 0;  ///< of them spent waiting for the source's batches, on this rank
  /// Nothing was learnt: no counted token, or a loss or norm that is not finite. With optimizer_in_backward those
  /// parameters have learnt that backward came to before the first gradient that is not finite.
  bool skipped = false;
  std::string documents = {};  ///< those of a skipped step's batches, on all ranks (Trainer::documents)
  /// The most that tensors held in forward and backward and in the update, bytes; 0 where they are not counted
  /// (ops::count_tensor_memory).
  std::int64_t backward_peak_bytes = 0, update_peak_bytes = 0;
};

}  // namespace ilme::train
