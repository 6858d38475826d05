// Shares the rows of distillation among the threads of libtorch. A row is one thread's, so its bits do not depend on
// their number.
#include "distillation.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "distillation_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {

const DistillationRows& distillation_rows() { return ILME_FASTEST_BODY(kDistillation); }

const char* distillation(const Distillation& a) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, a.vocabulary));
  const DistillationRows& rows = distillation_rows();
  at::parallel_for(0, a.rows, grain, [&](std::int64_t begin, std::int64_t end) { rows.losses(a, begin, end); });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
