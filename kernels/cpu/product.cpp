// Matrix products around oneDNN's block kernel, which libtorch carries and offers as at::native::cpublas::brgemm. The
// operands' blocks are copied into its layout in the cache, each once for a wide panel of the other operand: no
// operand is ever transposed or reordered as a whole, and sums in float32 go straight to where they are wanted.
#include "product.hpp"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "level.hpp"
#include "packing_rows.hpp"

namespace ilme::kernels::cpu {

#if defined(__x86_64__) && defined(CPUBLAS_BRGEMM_BF16BF16F32) && defined(CPUBLAS_BRGEMM_F32F32F32)

namespace {

constexpr std::int64_t kRows = 128;         // of a block of a
constexpr std::int64_t kColumns = 1024;     // of a panel of b
constexpr std::int64_t kBlock = 64;         // of them that lie together
constexpr std::int64_t kBytes = 1024;       // of a row of a block: a block lies in the second-level cache
constexpr std::int64_t kPanelBytes = 4096;  // of a panel's depth: it lies in the third-level cache
constexpr std::int64_t kMostRows = 2048;    // of c that share a panel
constexpr std::int64_t kLeastRows = 256;
constexpr std::int64_t kSkew = 16;       // keeps rows of sums out of each other's places in the cache
constexpr std::int64_t kDepthUnit = 32;  // depths are padded to its multiples, so that there are few shapes of blocks

/// Rows [m_begin, m_end) and columns [n_begin, n_end) of c.
struct Part {
  std::int64_t m_begin, m_end, n_begin, n_end;
};

/// Copies what is [rows, depth] of a into to [rows, padded], zeros behind each row.
template <class T>
void pack_a(const MatrixProduct& p, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth,
            std::int64_t padded, T* to, std::uint32_t* pairs) {
  const T* const a = static_cast<const T*>(p.a);
  if (!p.a_transposed) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * padded, a + (row + r) * p.a_stride + k, static_cast<std::size_t>(depth) * sizeof(T));
      std::fill(to + r * padded + depth, to + (r + 1) * padded, T{});
    }
    return;
  }
  if (depth < padded) std::fill_n(to, rows * padded, T{});
  const T* const from = a + k * p.a_stride + row;
  if constexpr (sizeof(T) == 4) {
    kPackingAvx512.transpose(from, p.a_stride * 4, depth, rows, reinterpret_cast<std::uint32_t*>(to), padded);
  } else {
    kPackingAvx512.interleave(from, p.a_stride, depth, rows, pairs, rows);
    kPackingAvx512.transpose(pairs, rows * 4, (depth + 1) / 2, rows, reinterpret_cast<std::uint32_t*>(to), padded / 2);
  }
}

/// Copies [depth, columns] of b into the kernel's layout: rows for float32; for 16-bit elements pairs of rows.
template <class T>
void pack_b(const MatrixProduct& p, std::int64_t k, std::int64_t depth, std::int64_t padded, std::int64_t column,
            std::int64_t columns, T* to) {
  const T* const b = static_cast<const T*>(p.b);
  std::uint32_t* const words = reinterpret_cast<std::uint32_t*>(to);
  if (depth < padded) std::fill_n(to, padded * columns, T{});
  if constexpr (sizeof(T) == 4) {
    if (p.b_transposed) {
      kPackingAvx512.transpose(b + column * p.b_stride + k, p.b_stride * 4, columns, depth, words, columns);
    } else {
      for (std::int64_t d = 0; d < depth; ++d) {
        std::memcpy(to + d * columns, b + (k + d) * p.b_stride + column, static_cast<std::size_t>(columns) * 4);
      }
    }
  } else {
    if (p.b_transposed) {
      const T* const from = b + column * p.b_stride + k;
      kPackingAvx512.transpose(from, p.b_stride * 2, columns, depth / 2, words, columns);
      if (depth % 2 != 0) {
        for (std::int64_t c = 0; c < columns; ++c) words[depth / 2 * columns + c] = from[c * p.b_stride + depth - 1];
      }
    } else {
      kPackingAvx512.interleave(b + k * p.b_stride + column, p.b_stride, depth, columns, words, columns);
    }
  }
}

template <class T>
void block_product(std::int64_t m, std::int64_t n, std::int64_t k, bool add, const T* a, const T* b, float* c,
                   std::int64_t c_stride) {
  if constexpr (sizeof(T) == 4) {
    at::native::cpublas::brgemm(m, n, k, k, n, c_stride, add, a, b, c, /*is_vnni=*/false);
  } else {
    at::native::cpublas::brgemm(m, n, k, k, n, c_stride, add, reinterpret_cast<const at::BFloat16*>(a),
                                reinterpret_cast<const at::BFloat16*>(b), c, /*is_vnni=*/true);
  }
}

/// Memory that a thread keeps; its elements start on a cache line.
template <class T>
T* scratch(std::vector<char>& memory, std::int64_t count) {
  constexpr std::size_t kLine = 64;
  memory.resize(static_cast<std::size_t>(count) * sizeof(T) + kLine);
  const std::size_t over = reinterpret_cast<std::uintptr_t>(memory.data()) % kLine;
  return reinterpret_cast<T*>(memory.data() + (kLine - over) % kLine);
}

template <class T>
void product_part(const MatrixProduct& p, const Part& part) {
  constexpr std::int64_t kDepth = kBytes / static_cast<std::int64_t>(sizeof(T)),
                         kPanel = kPanelBytes / static_cast<std::int64_t>(sizeof(T));
  static thread_local std::vector<char> a_memory, b_memory, c_memory, pair_memory;
  T* const a = scratch<T>(a_memory, kRows * kDepth);
  T* const b = scratch<T>(b_memory, std::min(kPanel, (p.k + kDepthUnit - 1) / kDepthUnit * kDepthUnit) * kColumns);
  std::uint32_t* const pairs = scratch<std::uint32_t>(pair_memory, sizeof(T) == 2 ? kRows * kDepth / 2 : 0);
  const std::int64_t columns = part.n_end - part.n_begin, rows = part.m_end - part.m_begin;
  const bool rounds = p.c_dtype != DType::float32, passes = p.k > kPanel;
  const std::int64_t sum_stride = columns + kSkew;
  float* const sums = rounds ? scratch<float>(c_memory, (passes ? rows : kRows) * sum_stride) : nullptr;
  for (std::int64_t panel = 0; panel < p.k; panel += kPanel) {
    const std::int64_t end = std::min(p.k, panel + kPanel);
    const auto padded_depth = [&](std::int64_t k) {
      return (std::min(kDepth, end - k) + kDepthUnit - 1) / kDepthUnit * kDepthUnit;
    };
    for (std::int64_t k = panel; k < end; k += kDepth) {
      const std::int64_t padded = padded_depth(k);
      for (std::int64_t n = 0; n < columns; n += kBlock) {
        pack_b(p, k, std::min(kDepth, end - k), padded, part.n_begin + n, std::min(kBlock, columns - n),
               b + (k - panel) * columns + n * padded);
      }
    }
    for (std::int64_t m = part.m_begin; m < part.m_end; m += kRows) {
      const std::int64_t count = std::min(kRows, part.m_end - m);
      float* const sum = rounds ? sums + (passes ? (m - part.m_begin) * sum_stride : 0)
                                : static_cast<float*>(p.c) + m * p.c_stride + part.n_begin;
      const std::int64_t stride = rounds ? sum_stride : p.c_stride;
      for (std::int64_t k = panel; k < end; k += kDepth) {
        const std::int64_t padded = padded_depth(k);
        pack_a(p, m, count, k, std::min(kDepth, end - k), padded, a, pairs);
        for (std::int64_t n = 0; n < columns; n += kBlock) {
          block_product(count, std::min(kBlock, columns - n), padded, p.add || k > 0, a,
                        b + (k - panel) * columns + n * padded, sum + n, stride);
        }
      }
      if (rounds && end == p.k) {
        kPackingAvx512.round(sum, sum_stride, count, columns,
                             static_cast<std::uint16_t*>(p.c) + m * p.c_stride + part.n_begin, p.c_stride);
      }
    }
  }
}

template <class T>
void product(const MatrixProduct& p) {
  const std::int64_t panels = (p.n + kColumns - 1) / kColumns, threads = at::get_num_threads();
  std::int64_t rows = kMostRows;
  while (rows > kLeastRows && panels * ((p.m + rows - 1) / rows) < 4 * threads) rows /= 2;
  const std::int64_t stripes = (p.m + rows - 1) / rows;
  at::parallel_for(0, panels * stripes, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t m = i / panels * rows, n = i % panels * kColumns;
      product_part<T>(p, {m, std::min(p.m, m + rows), n, std::min(p.n, n + kColumns)});
    }
    at::native::cpublas::brgemm_release(sizeof(T) == 2);
  });
}

}  // namespace

bool has_matrix_product(DType dtype) {
  return (dtype == DType::bfloat16 && level() >= Level::avx512_bf16) ||
         (dtype == DType::float32 && level() >= Level::avx512);
}

const char* matrix_product(const MatrixProduct& p) {
  if (!has_matrix_product(p.dtype)) return "no matrix product for this element type on this processor";
  if (p.c_dtype != DType::float32 && (p.add || p.c_dtype != p.dtype)) {
    return "a matrix product adds to float32, and gives float32 or its operands' type";
  }
  if (p.k == 0 && !p.add) {
    const std::size_t size = p.c_dtype == DType::float32 ? 4 : 2;
    for (std::int64_t m = 0; m < p.m; ++m) {
      std::memset(static_cast<char*>(p.c) + static_cast<std::size_t>(m * p.c_stride) * size, 0,
                  static_cast<std::size_t>(p.n) * size);
    }
  }
  if (p.m == 0 || p.n == 0 || p.k == 0) return nullptr;
  p.dtype == DType::float32 ? product<float>(p) : product<std::uint16_t>(p);
  return nullptr;
}

#else

bool has_matrix_product(DType) { return false; }
const char* matrix_product(const MatrixProduct&) { return "no matrix product on this processor"; }

#endif

}  // namespace ilme::kernels::cpu
