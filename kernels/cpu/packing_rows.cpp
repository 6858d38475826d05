// Moves blocks of matrices into the layouts that the product's inner kernel reads. Compiled for AVX-512, without which
// nobody calls it; it includes nothing with inline functions of external linkage (see vectors.hpp).
#include "packing_rows.hpp"

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

/// Exchanges the lanes of a and b that are `kDistance` apart, one step of a transposition: a keeps its lanes without
/// that bit and gets b's beside them, b the other way round.
template <std::uint32_t kDistance>
inline void exchange(Words& a, Words& b) {
  Words low, high;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    const bool upper = (lane & kDistance) != 0;
    low[lane] = upper ? kLanes + lane - kDistance : lane;
    high[lane] = upper ? kLanes + lane : lane + kDistance;
  }
  const Words first = __builtin_shuffle(a, b, low), second = __builtin_shuffle(a, b, high);
  a = first;
  b = second;
}

template <std::uint32_t kDistance>
inline void exchange_all(Words (&block)[kLanes]) {
#pragma GCC unroll 16
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if ((i & kDistance) == 0) exchange<kDistance>(block[i], block[i + kDistance]);
  }
}

void transpose(const void* from, std::int64_t from_bytes, std::int64_t rows, std::int64_t columns, std::uint32_t* to,
               std::int64_t to_stride) {
  const char* const bytes = static_cast<const char*>(from);
  const std::int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole_columns; c += kLanes) {
    for (std::int64_t r = 0; r < whole_rows; r += kLanes) {
      Words block[kLanes];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kLanes; ++i) {
        __builtin_memcpy(&block[i], bytes + (r + i) * from_bytes + c * 4, sizeof(Words));
      }
      exchange_all<8>(block);
      exchange_all<4>(block);
      exchange_all<2>(block);
      exchange_all<1>(block);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kLanes; ++i) {
        __builtin_memcpy(to + (c + i) * to_stride + r, &block[i], sizeof(Words));
      }
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      __builtin_memcpy(to + c * to_stride + r, bytes + r * from_bytes + c * 4, 4);
    }
  }
}

void interleave(const std::uint16_t* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                std::uint32_t* to, std::int64_t to_stride) {
  constexpr std::int64_t kAhead = 16;
  for (std::int64_t r = 0; r < rows; r += 2) {
    const std::uint16_t* const first = from + r * from_stride;
    const std::uint16_t* const second = r + 1 < rows ? first + from_stride : nullptr;
    std::uint32_t* const pairs = to + r / 2 * to_stride;
    // Rows lie pages apart, where no hardware looks ahead.
    for (std::int64_t c = 0; c < columns; c += 32) {
      __builtin_prefetch(first + kAhead * from_stride + c);
      __builtin_prefetch(first + (kAhead + 1) * from_stride + c);
    }
    std::int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      Shorts low, high = {};
      __builtin_memcpy(&low, first + c, sizeof low);
      if (second != nullptr) __builtin_memcpy(&high, second + c, sizeof high);
      const Words pair = __builtin_convertvector(low, Words) | (__builtin_convertvector(high, Words) << 16);
      __builtin_memcpy(pairs + c, &pair, sizeof pair);
    }
    for (; c < columns; ++c) {
      pairs[c] = first[c] | (second == nullptr ? 0u : static_cast<std::uint32_t>(second[c]) << 16);
    }
  }
}

void round(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, std::uint16_t* to,
           std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for_each_vector(columns, [&](auto load, auto store, std::int64_t at) {
      store(load(from + r * from_stride + at), reinterpret_cast<BFloat16*>(to + r * to_stride) + at);
    });
  }
}

}  // namespace

extern const PackingRows ILME_ROWS(kPacking) = {transpose, interleave, round};

}  // namespace ilme::kernels::cpu
