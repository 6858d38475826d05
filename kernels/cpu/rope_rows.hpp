/// The inner loop of the rotary position embedding on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

struct RopeRows {
  /// Tokens [begin, end).
  void (*rotate)(const Rope&, std::int64_t begin, std::int64_t end);
};

extern const RopeRows kRopeBaseline;
#if defined(__x86_64__)
extern const RopeRows kRopeAvx2, kRopeAvx512;
#endif

/// The fastest that this processor runs.
const RopeRows& rope_rows();

}  // namespace ilme::kernels::cpu
