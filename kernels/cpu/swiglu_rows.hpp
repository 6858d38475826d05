/// The inner loops of SwiGLU on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

struct SwigluRows {
  /// Elements [begin, end).
  void (*forward)(const SwigluForward&, std::int64_t begin, std::int64_t end);
  void (*backward)(const SwigluBackward&, std::int64_t begin, std::int64_t end);
};

extern const SwigluRows kSwigluBaseline;
#if defined(__x86_64__)
extern const SwigluRows kSwigluAvx2, kSwigluAvx512;
#endif

/// The fastest that this processor runs.
const SwigluRows& swiglu_rows();

}  // namespace ilme::kernels::cpu
