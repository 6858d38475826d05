// Shares the sequences and their heads among the threads of libtorch.
#include "cached_attention.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cached_attention_rows.hpp"
#include "level.hpp"

namespace ilme::kernels::cpu {

const CachedAttentionRows& cached_attention_rows() { return ILME_FASTEST_BODY(kCachedAttention); }

const char* cached_attention_forward(const CachedAttentionForward& a) {
  constexpr std::int64_t kGrain = 32768;  // multiplications that are worth waking a thread for
  const CachedAttentionRows& rows = cached_attention_rows();
  const std::int64_t longest = *std::max_element(a.lengths, a.lengths + a.sequences) + 1;
  const std::int64_t work = longest * a.head_dim * (a.heads / a.kv_heads);
  at::parallel_for(0, a.sequences * a.kv_heads, std::max<std::int64_t>(1, kGrain / work),
                   [&](std::int64_t begin, std::int64_t end) {
                     static thread_local std::vector<float> scratch;
                     scratch.resize(static_cast<std::size_t>(cached_attention_scratch(a, longest)));
                     for (std::int64_t item = begin; item < end; ++item) rows.attend(a, item, scratch.data());
                   });
  return nullptr;
}

}  // namespace ilme::kernels::cpu
