/// The inner loops of packed causal attention on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

/// One document's attention for one head of keys and values and all heads of queries that share it.
struct AttentionRows {
  /// Writes out and log_sum of these heads at the document's tokens.
  void (*forward)(const AttentionForward&, std::int64_t document, std::int64_t kv_head, float* workspace);
  /// Writes dq, dk and dv of these heads at the document's tokens.
  void (*backward)(const AttentionBackward&, std::int64_t document, std::int64_t kv_head, float* workspace);
  /// Floats of workspace for documents of up to `length` tokens.
  std::int64_t (*workspace)(std::int64_t length, std::int64_t head_dim, bool backward);
};

ILME_DECLARE_BODIES(AttentionRows, kAttention);

/// The fastest that this processor runs.
const AttentionRows& attention_rows();

}  // namespace ilme::kernels::cpu
