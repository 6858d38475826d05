/// The inner loop of AdamW on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct AdamWRows {
  /// Elements [begin, end) of one tensor.
  void (*step)(const AdamWStep&, const AdamWTensor&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(AdamWRows, kAdamW);

/// The fastest that this processor runs.
const AdamWRows& adamw_rows();

}  // namespace ilme::kernels::cpu
