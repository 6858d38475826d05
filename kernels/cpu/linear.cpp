// Shares the columns of a product of few rows with a weight among the threads of libtorch.
#include "linear.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "level.hpp"
#include "linear_rows.hpp"

namespace ilme::kernels::cpu {

const LinearRows& linear_rows() { return ILME_FASTEST_BODY(kLinear); }

const char* linear_forward(const LinearForward& a) {
  constexpr std::int64_t kColumns = 8, kGrain = 32768;  // weight elements that are worth waking a thread for
  const LinearRows& rows = linear_rows();
  const std::int64_t padded = (a.in + kLinearChunk - 1) / kLinearChunk * kLinearChunk;
  static thread_local std::vector<float> scratch;
  scratch.resize(static_cast<std::size_t>(a.rows * padded));
  void* const packed = scratch.data();
  rows.pack(a, packed);
  at::parallel_for(0, (a.out + kColumns - 1) / kColumns,
                   std::max<std::int64_t>(1, kGrain / (kColumns * std::max<std::int64_t>(1, a.in))),
                   [&](std::int64_t begin, std::int64_t end) {
                     rows.columns(a, packed, begin * kColumns, std::min(a.out, end * kColumns));
                   });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
