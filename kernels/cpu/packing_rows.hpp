// What a matrix product needs of its operands' blocks; one body per instruction set.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

namespace ilme::kernels::cpu {

struct PackingRows {
  /// to[c][r] = from[r][c] for 32-bit words; strides in words of `to` and in bytes of `from`, which need not be
  /// aligned.
  void (*transpose)(const void* from, std::int64_t from_bytes, std::int64_t rows, std::int64_t columns,
                    std::uint32_t* to, std::int64_t to_stride);
  /// to[r / 2][c] = the pair (from[r][c], from[r + 1][c]) of 16-bit elements, the first in the low half; an odd last
  /// row is paired with zeros. Strides in elements.
  void (*interleave)(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                     std::uint32_t* to, std::int64_t to_stride);
  /// to[r][c] = from[r][c], rounded to bf16. Strides in elements.
  void (*round)(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, std::uint16_t* to,
                std::int64_t to_stride);
};

extern const PackingRows kPackingAvx512;

}  // namespace ilme::kernels::cpu
