/// The inner loops of the cross-entropy on the CPU, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

struct CrossEntropyRows {
  /// Rows [begin, end) of the forward, and of the gradient where one is wanted.
  void (*forward)(const CrossEntropy&, std::int64_t begin, std::int64_t end);
  /// Rows [begin, end) of the gradient from the forward's log_normalizer.
  void (*backward)(const CrossEntropy&, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(CrossEntropyRows, kCrossEntropy);

/// The fastest that this processor runs.
const CrossEntropyRows& cross_entropy_rows();

}  // namespace ilme::kernels::cpu
