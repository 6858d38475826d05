/// The inner loops of SwiGLU on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct SwigluRows {
  /// Elements [begin, end).
  void (*forward)(const SwigluForward&, std::int64_t begin, std::int64_t end);
  void (*backward)(const SwigluBackward&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(SwigluRows, kSwiglu);

/// The fastest that this processor runs.
const SwigluRows& swiglu_rows();

}  // namespace ilme::kernels::cpu
