/// The inner loops of distillation on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

/// Rows [begin, end).
using DistillationRows = void(const Distillation&, std::int64_t begin, std::int64_t end);

extern DistillationRows* const kDistillationBaseline;
#if defined(__x86_64__)
extern DistillationRows *const kDistillationAvx2, *const kDistillationAvx512;
#endif

/// The fastest that this processor runs.
DistillationRows* distillation_rows();

}  // namespace ilme::kernels::cpu
