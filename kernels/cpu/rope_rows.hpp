/// The inner loop of the rotary position embedding on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct RopeRows {
  /// Tokens [begin, end).
  void (*rotate)(const Rope&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(RopeRows, kRope);

/// The fastest that this processor runs.
const RopeRows& rope_rows();

}  // namespace ilme::kernels::cpu
