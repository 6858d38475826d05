// Shares the tokens of the rotary position embedding among the threads of libtorch.
#include "rope.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

#include "level.hpp"
#include "rope_rows.hpp"

namespace ilme::kernels::cpu {

const RopeRows& rope_rows() { return ILME_FASTEST_BODY(kRope); }

const char* rope(const Rope& a) {
  constexpr std::int64_t kGrain = 32768;  // elements that are worth waking a thread
  const RopeRows& rows = rope_rows();
  const std::int64_t elements = std::max<std::int64_t>(1, (a.heads + a.kv_heads) * a.head_dim);
  at::parallel_for(0, a.tokens, std::max<std::int64_t>(1, kGrain / elements),
                   [&](std::int64_t begin, std::int64_t end) { rows.rotate(a, begin, end); });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
