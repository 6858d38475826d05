// y = x @ weight^T for a few rows of x, where the time goes into reading the weight: every weight is read once from
// memory, whole rows at a time, and used for all rows of x while it is in registers or in the first cache.
//
// A sum runs over `in` in vectors of 16 float32 lanes in ascending order, and then over the lanes as in sum_lanes_of_8;
// how many rows and columns are computed together does not change it. So a row of y does not depend on the others.
#include "linear_rows.hpp"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

constexpr std::int64_t kChunk = kLinearChunk;
constexpr std::int64_t kAhead = 16384;  // bytes between what is multiplied and what is fetched

/// How a chunk of a weight's row is multiplied with a chunk of a packed row: the general form converts both to float32.
template <class T>
struct Chunk {
  typedef float Packed;
  struct Values {
    Floats low, high;
  };
  static Values load(const T* from) { return {widen(from), widen(from + kLanes)}; }
  static Values load_packed(const Packed* from) { return {widen(from), widen(from + kLanes)}; }
  static void add_product(Floats& sum, const Values& a, const Values& b) {
    sum += a.low * b.low;
    sum += a.high * b.high;
  }
  static void pack(const T* from, Packed* to) {
    narrow(widen(from), to);
    narrow(widen(from + kLanes), to + kLanes);
  }
};

#if defined(__AVX512BF16__)
/// The processor multiplies pairs of bf16 and adds them in float32.
template <>
struct Chunk<BFloat16> {
  typedef BFloat16 Packed;
  typedef __m512i Values;
  static Values load(const BFloat16* from) { return _mm512_loadu_si512(from); }
  static Values load_packed(const Packed* from) { return _mm512_loadu_si512(from); }
  static void add_product(Floats& sum, const Values& a, const Values& b) {
    sum = reinterpret_cast<Floats>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
  }
  static void pack(const BFloat16* from, Packed* to) { __builtin_memcpy(to, from, kChunk * sizeof(Packed)); }
};
#else
/// Two bf16 lie in a word of 32 bits: the second is a float32 once the first is cleared, the first once it is shifted.
template <>
struct Chunk<BFloat16> {
  typedef float Packed;
  struct Values {
    Floats low, high;  // the even elements, the odd ones
  };
  static Values load(const BFloat16* from) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    return {reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xFFFF0000U)};
  }
  static Values load_packed(const Packed* from) { return {widen(from), widen(from + kLanes)}; }
  static void add_product(Floats& sum, const Values& a, const Values& b) {
    sum += a.low * b.low;
    sum += a.high * b.high;
  }
  static void pack(const BFloat16* from, Packed* to) {
    const Values values = load(from);
    narrow(values.low, to);
    narrow(values.high, to + kLanes);
  }
};
#endif

/// The last elements of a row, fewer than a chunk, followed by zeros.
template <class T>
struct Tail {
  T values[kChunk] = {};
  Tail(const T* from, std::int64_t count) {
    __builtin_memcpy(values, from, static_cast<std::size_t>(count) * sizeof(T));
  }
};

template <class T>
void pack_rows(const LinearForward& a, void* packed) {
  typename Chunk<T>::Packed* to = static_cast<typename Chunk<T>::Packed*>(packed);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.in;
    std::int64_t at = 0;
    for (; at + kChunk <= a.in; at += kChunk, to += kChunk) Chunk<T>::pack(x + at, to);
    if (at < a.in) {
      Chunk<T>::pack(Tail<T>(x + at, a.in - at).values, to);
      to += kChunk;
    }
  }
}

/// sums[r][c] = x[r] . weight[c] before the lanes are added, for Rows packed rows and Columns rows of the weight. One
/// row of the weight after the other is what the processor foresees by itself; when several are read at a time, the
/// memory that follows has to be fetched in its order (`Fetch`): short rows took twice as long without.
template <class T, int Rows, int Columns, bool Fetch>
inline void multiply(const typename Chunk<T>::Packed* x, std::int64_t padded, const T* weight, std::int64_t in,
                     Floats (&sums)[Rows][Columns]) {
  for (auto& row : sums) {
    for (Floats& sum : row) sum = Floats{};
  }
  const auto add_chunk = [&](std::int64_t at, auto weight_chunk) {
    if constexpr (Fetch) {
      constexpr int kBytes = Columns * kChunk * static_cast<int>(sizeof(T));
      const char* const next = reinterpret_cast<const char*>(weight + at * Columns) + kAhead;
      for (int byte = 0; byte < kBytes; byte += 64) __builtin_prefetch(next + byte, 0, 2);
    }
    typename Chunk<T>::Values values[Rows];
    for (int r = 0; r < Rows; ++r) values[r] = Chunk<T>::load_packed(x + r * padded + at);
    for (int c = 0; c < Columns; ++c) {
      const typename Chunk<T>::Values factor = weight_chunk(weight + c * in + at);
      for (int r = 0; r < Rows; ++r) Chunk<T>::add_product(sums[r][c], factor, values[r]);
    }
  };
  std::int64_t at = 0;
  for (; at + kChunk <= in; at += kChunk) add_chunk(at, [](const T* from) { return Chunk<T>::load(from); });
  if (at < in) add_chunk(at, [&](const T* from) { return Chunk<T>::load(Tail<T>(from, in - at).values); });
}

/// Columns [first, first + 8), or fewer at the end, of the rows [row, row + Rows).
template <class T, int Rows, int Columns, bool Fetch>
void block(const LinearForward& a, const typename Chunk<T>::Packed* x, std::int64_t padded, std::int64_t row,
           std::int64_t first, std::int64_t count) {
  Floats sums[Rows][8] = {};
  const T* const weight = static_cast<const T*>(a.weight) + first * a.in;
  std::int64_t c = 0;
  for (; c + Columns <= count; c += Columns) {
    Floats some[Rows][Columns];
    multiply<T, Rows, Columns, Fetch>(x + row * padded, padded, weight + c * a.in, a.in, some);
    for (int r = 0; r < Rows; ++r) {
      for (int i = 0; i < Columns; ++i) sums[r][c + i] = some[r][i];
    }
  }
  for (; c < count; ++c) {
    Floats some[Rows][1];
    multiply<T, Rows, 1, false>(x + row * padded, padded, weight + c * a.in, a.in, some);
    for (int r = 0; r < Rows; ++r) sums[r][c] = some[r][0];
  }
  Floats bias = {};
  if (a.bias != nullptr) bias = widen_part(static_cast<const T*>(a.bias) + first, count);
  for (int r = 0; r < Rows; ++r) {
    const Floats y = sum_lanes_of_8(sums[r]) + bias;
    const std::int64_t at = (row + r) * a.out + first;
    if (a.y_dtype == DType::float32) {
      narrow_part(y, static_cast<float*>(a.y) + at, count);
    } else {
      narrow_part(y, static_cast<T*>(a.y) + at, count);
    }
  }
}

template <class T>
void all_columns(const LinearForward& a, const void* packed, std::int64_t begin, std::int64_t end) {
  const auto* const x = static_cast<const typename Chunk<T>::Packed*>(packed);
  const std::int64_t padded = (a.in + kChunk - 1) / kChunk * kChunk;
  for (std::int64_t first = begin; first < end; first += 8) {
    const std::int64_t count = end - first < 8 ? end - first : 8;
    // The first rows bring the weight from memory, the others find it in the cache.
    std::int64_t row = 0;
    for (; row + 4 <= a.rows; row += 4) {
      row == 0 ? block<T, 4, 2, true>(a, x, padded, row, first, count)
               : block<T, 4, 4, false>(a, x, padded, row, first, count);
    }
    for (; row + 2 <= a.rows; row += 2) {
      row == 0 ? block<T, 2, 2, true>(a, x, padded, row, first, count)
               : block<T, 2, 4, false>(a, x, padded, row, first, count);
    }
    if (row < a.rows) block<T, 1, 1, false>(a, x, padded, row, first, count);
  }
}

void pack(const LinearForward& a, void* packed) {
  switch (a.dtype) {
    case DType::float32:
      return pack_rows<float>(a, packed);
    case DType::bfloat16:
      return pack_rows<BFloat16>(a, packed);
    case DType::float16:
      return pack_rows<Half>(a, packed);
  }
}

void columns(const LinearForward& a, const void* packed, std::int64_t begin, std::int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return all_columns<float>(a, packed, begin, end);
    case DType::bfloat16:
      return all_columns<BFloat16>(a, packed, begin, end);
    case DType::float16:
      return all_columns<Half>(a, packed, begin, end);
  }
}

}  // namespace

const LinearRows ILME_ROWS(kLinear) = {pack, columns};

}  // namespace ilme::kernels::cpu
