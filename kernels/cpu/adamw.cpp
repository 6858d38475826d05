// Shares the elements of all tensors of an AdamW step among the threads of libtorch.
#include "adamw.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "adamw_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {

const AdamWRows& adamw_rows() { return ILME_FASTEST_BODY(kAdamW); }

const char* adamw_step(const AdamWStep& a) {
  constexpr std::int64_t kPart = 16384;     // elements
  std::vector<std::int64_t> first_part{0};  // of each tensor, and their number
  for (std::int64_t i = 0; i < a.count; ++i)
    first_part.push_back(first_part.back() + (a.tensors[i].size + kPart - 1) / kPart);
  const AdamWRows& rows = adamw_rows();
  at::parallel_for(0, first_part.back(), /*grain_size=*/2, [&](std::int64_t begin, std::int64_t end) {
    auto after = std::upper_bound(first_part.begin(), first_part.end(), begin);
    for (std::int64_t part = begin; part < end; ++after) {
      const AdamWTensor& tensor = a.tensors[after - first_part.begin() - 1];
      const std::int64_t last = std::min(end, *after), skipped = *(after - 1);
      if (part < last) rows.step(a, tensor, (part - skipped) * kPart, std::min(tensor.size, (last - skipped) * kPart));
      part = last;
    }
  });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
