/// The inner loops of RMSNorm on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct RmsNormRows {
  /// Rows [begin, end) of the forward.
  void (*forward)(const RmsNormForward&, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end) of the backward; adds to `dweight` [size] unless it is null.
  void (*backward)(const RmsNormBackward&, float* dweight, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(RmsNormRows, kRmsNorm);

/// The fastest that this processor runs.
const RmsNormRows& rms_norm_rows();

}  // namespace ilme::kernels::cpu
