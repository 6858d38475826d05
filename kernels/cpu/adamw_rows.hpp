/// The inner loop of AdamW on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

struct AdamWRows {
  /// Elements [begin, end) of one tensor.
  void (*step)(const AdamWStep&, const AdamWTensor&, std::int64_t begin, std::int64_t end);
};

extern const AdamWRows kAdamWBaseline;
#if defined(__x86_64__)
extern const AdamWRows kAdamWAvx2, kAdamWAvx512;
#endif

/// The fastest that this processor runs.
const AdamWRows& adamw_rows();

}  // namespace ilme::kernels::cpu
