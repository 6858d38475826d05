/// The inner loop of an embedding's gradient on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct EmbeddingRows {
  /// Columns [begin, end) of all tokens.
  void (*add)(const EmbeddingBackward&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(EmbeddingRows, kEmbedding);

/// The fastest that this processor runs.
const EmbeddingRows& embedding_rows();

}  // namespace ilme::kernels::cpu
