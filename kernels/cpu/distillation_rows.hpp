/// The inner loops of distillation on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct DistillationRows {
  /// Rows [begin, end).
  void (*losses)(const Distillation&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(DistillationRows, kDistillation);

/// The fastest that this processor runs.
const DistillationRows& distillation_rows();

}  // namespace ilme::kernels::cpu
