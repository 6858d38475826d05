/// The inner loops of the product of few rows with a weight, compiled once for every instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#include "bodies.hpp"

namespace ilme::kernels::cpu {

inline constexpr std::int64_t kLinearChunk = 32;  // a row of x is packed in whole chunks of so many elements

struct LinearRows {
  /// Writes x in the form that `columns` reads: `rows` times `in` rounded up to whole chunks, 4 bytes an element at
  /// most.
  void (*pack)(const LinearForward&, void* packed);
  /// Columns [begin, end) of y; `begin` is a multiple of 8.
  void (*columns)(const LinearForward&, const void* packed, std::int64_t begin, std::int64_t end);
};

ILME_DECLARE_BODIES(LinearRows, kLinear);

/// The fastest that this processor runs.
const LinearRows& linear_rows();

}  // namespace ilme::kernels::cpu
