/// The inner loops of attention to cached tokens, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

/// Floats of scratch that an item of CachedAttentionRows needs over `tokens` tokens, the new one among them.
inline std::int64_t cached_attention_scratch(const CachedAttentionForward& a, std::int64_t tokens) {
  return ((a.head_dim + 15) / 16 + (tokens + 15) / 16) * 16;
}

struct CachedAttentionRows {
  /// Item `sequence * kv_heads + kv_head`: appends the key and the value, and computes the heads that share them.
  void (*attend)(const CachedAttentionForward&, std::int64_t item, float* scratch);
};

ILME_DECLARE_BODIES(CachedAttentionRows, kCachedAttention);

/// The fastest that this processor runs.
const CachedAttentionRows& cached_attention_rows();

}  // namespace ilme::kernels::cpu
