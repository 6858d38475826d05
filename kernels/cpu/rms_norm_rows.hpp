/// The inner loops of RMSNorm on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

struct RmsNormRows {
  /// Rows [begin, end) of the forward.
  void (*forward)(const RmsNormForward&, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end) of the backward; adds to `dweight` [size] unless it is null.
  void (*backward)(const RmsNormBackward&, float* dweight, std::int64_t begin, std::int64_t end);
};

extern const RmsNormRows kRmsNormBaseline;
#if defined(__x86_64__)
extern const RmsNormRows kRmsNormAvx2, kRmsNormAvx512;
#endif

/// The fastest that this processor runs.
const RmsNormRows& rms_norm_rows();

}  // namespace ilme::kernels::cpu
