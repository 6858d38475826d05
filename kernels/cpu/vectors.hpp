/// Vectors of 16 floats for the sources that are compiled once for every instruction set. The compiler makes them one
/// register with AVX-512, two with AVX2, four with SSE2 or NEON. GCC does so well for arithmetic, but takes comparisons
/// and conversions of vectors wider than a register apart into single elements; those are written out here. Everything
/// is in an unnamed namespace: with external linkage the linker could take a function from the AVX-512 object for the
/// whole program.
#pragma once

#include <cstdint>

#include <ilme/kernels/abi.hpp>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/// `ILME_ROWS(kName)` is kName with the instruction set that the build compiles for, such as kNameAvx2.
#define ILME_JOIN_NAMES(name, level) name##level
#define ILME_NAME_OF_LEVEL(name, level) ILME_JOIN_NAMES(name, level)
#define ILME_ROWS(name) ILME_NAME_OF_LEVEL(name, ILME_LEVEL)

namespace ilme::kernels::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));
typedef std::int32_t Integers __attribute__((vector_size(64)));
typedef std::uint16_t Shorts __attribute__((vector_size(32)));

struct BFloat16 {
  std::uint16_t bits;
};
#if defined(__FLT16_MAX__)
typedef _Float16 Half;
#else
typedef __fp16 Half;
#endif

/// call(T{}) with the element type T that `dtype` names.
template <class Call>
inline void with_element(DType dtype, Call call) {
  switch (dtype) {
    case DType::float32:
      return call(float{});
    case DType::bfloat16:
      return call(BFloat16{});
    case DType::float16:
      return call(Half{});
  }
}

/// `yes` where a lane of `a` is below that of `b`, else `no`; a and b below 2^31.
inline Words where_below(Words a, Words b, Words yes, Words no) {
#if defined(__AVX512F__)
  return a < b ? yes : no;
#else
  const Words below = reinterpret_cast<Words>(reinterpret_cast<Integers>(a - b) >> 31);
  return (yes & below) | (no & ~below);
#endif
}

inline Floats widen(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline Floats widen(const BFloat16* from) {
  Words words;
#if defined(__AVX512F__)
  words = reinterpret_cast<Words>(
      _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__)
  const __m128i* const parts = reinterpret_cast<const __m128i*>(from);
  const __m256i wide[] = {_mm256_cvtepu16_epi32(_mm_loadu_si128(parts)),
                          _mm256_cvtepu16_epi32(_mm_loadu_si128(parts + 1))};
  __builtin_memcpy(&words, wide, sizeof words);
#else
  Shorts bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  words = __builtin_convertvector(bits, Words);
#endif
  return reinterpret_cast<Floats>(words << 16);
}
inline Floats widen(const Half* from) {
  Floats value;
#if defined(__AVX512F__)
  value = reinterpret_cast<Floats>(
      _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
  const __m128i* const parts = reinterpret_cast<const __m128i*>(from);
  const __m256 wide[] = {_mm256_cvtph_ps(_mm_loadu_si128(parts)), _mm256_cvtph_ps(_mm_loadu_si128(parts + 1))};
  __builtin_memcpy(&value, wide, sizeof value);
#else
  for (std::int64_t lane = 0; lane < kLanes; ++lane) value[lane] = static_cast<float>(from[lane]);
#endif
  return value;
}

inline void narrow(Floats value, float* to) { __builtin_memcpy(to, &value, sizeof value); }
inline void narrow(Floats value, BFloat16* to) {  // to nearest, ties to even
#if defined(__AVX512BF16__)                       // which takes float32 below 2^-126 for zero
  const __m256bh bits = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
  __builtin_memcpy(to, &bits, sizeof bits);
#else
  const Words word = reinterpret_cast<Words>(value);
  const Words rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
  const Words quiet = (word >> 16) | 0x40;  // rounding could carry a NaN to infinity
  const Words bits = where_below(Words{} + 0x7F800000, word & 0x7FFFFFFF, quiet, rounded);
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtepi32_epi16(0xFFFF, reinterpret_cast<__m512i>(bits)));
#elif defined(__AVX2__)
  __m256i parts[2];
  __builtin_memcpy(parts, &bits, sizeof bits);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_permute4x64_epi64(_mm256_packus_epi32(parts[0], parts[1]), 0xD8));
#else
  const Shorts shorts = __builtin_convertvector(bits, Shorts);
  __builtin_memcpy(to, &shorts, sizeof shorts);
#endif
#endif
}
inline void narrow(Floats value, Half* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xFFFF, reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  __m256 parts[2];
  __builtin_memcpy(parts, &value, sizeof value);
  for (int i = 0; i < 2; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to) + i, _mm256_cvtps_ph(parts[i], _MM_FROUND_TO_NEAREST_INT));
  }
#else
  for (std::int64_t lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<Half>(value[lane]);
#endif
}

template <class T>
inline Floats round_to(Floats value) {
  T rounded[kLanes];
  narrow(value, rounded);
  return widen(rounded);
}
template <>
inline Floats round_to<float>(Floats value) {
  return value;
}

/// The last elements of a row, fewer than a vector; the rest is zero.
template <class T>
inline Floats widen_part(const T* from, std::int64_t count) {
  T whole[kLanes] = {};
  __builtin_memcpy(whole, from, static_cast<std::size_t>(count) * sizeof(T));
  return widen(whole);
}
template <class T>
inline void narrow_part(Floats value, T* to, std::int64_t count) {
  T whole[kLanes];
  narrow(value, whole);
  __builtin_memcpy(to, whole, static_cast<std::size_t>(count) * sizeof(T));
}

/// step(load, store, offset) for every vector of a row; `load` and `store` know how many elements are left.
template <class Step>
inline void for_each_vector(std::int64_t size, Step step) {
  const auto load = [](const auto* from) { return widen(from); };
  const auto store = [](Floats value, auto* to) { narrow(value, to); };
  std::int64_t at = 0;
  for (; at + kLanes <= size; at += kLanes) step(load, store, at);
  if (const std::int64_t left = size - at; left > 0) {
    step([left](const auto* from) { return widen_part(from, left); },
         [left](Floats value, auto* to) { narrow_part(value, to, left); }, at);
  }
}

inline Floats square_root(Floats value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_maskz_sqrt_ps(0xFFFF, reinterpret_cast<__m512>(value)));
#else
  float lanes[kLanes];
  narrow(value, lanes);
#if defined(__AVX__)
  for (int i = 0; i < kLanes; i += 8) _mm256_storeu_ps(lanes + i, _mm256_sqrt_ps(_mm256_loadu_ps(lanes + i)));
#elif defined(__SSE2__)
  for (int i = 0; i < kLanes; i += 4) _mm_storeu_ps(lanes + i, _mm_sqrt_ps(_mm_loadu_ps(lanes + i)));
#else
  for (float& lane : lanes) lane = __builtin_sqrtf(lane);
#endif
  return widen(lanes);
#endif
}

inline float sum_lanes(Floats value) {
  float sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += value[lane];
  return sum;
}

/// exp(x) for x <= 0, to about one unit in the last place; 0 below -87, where float32 loses precision.
inline Floats exp_of_negative(Floats x) {
  // x = n ln 2 + r with |r| <= ln(2) / 2; adding 1.5 * 2^23 rounds to a whole number, held in the lowest bits.
  const Floats shifted = x * 1.44269504f + 12582912.0f;
  const Floats n = shifted - 12582912.0f;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
#if defined(__AVX512F__)
  const __mmask16 kept =
      _mm512_cmp_ps_mask(reinterpret_cast<__m512>(x), _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);  // NaN stays
  return reinterpret_cast<Floats>(
      _mm512_maskz_scalef_ps(kept, reinterpret_cast<__m512>(series), reinterpret_cast<__m512>(n)));
#else
  const Words power = (reinterpret_cast<Words>(shifted) + 127) << 23;  // the shifted number's own bits fall off
  const Words value = reinterpret_cast<Words>(series * reinterpret_cast<Floats>(power));
  const Words size = reinterpret_cast<Words>(x) & 0x7FFFFFFF, limit = reinterpret_cast<Words>(Floats{} + 87.0f);
  const Words small = where_below(Words{} + 0x7F800000, size, value, Words{});  // NaN stays
  return reinterpret_cast<Floats>(where_below(limit, size, small, value));
#endif
}

/// 1 / (1 + exp(-x)).
inline Floats sigmoid(Floats x) {
  const Words bits = reinterpret_cast<Words>(x), sign = bits >> 31;
  const Floats power = exp_of_negative(reinterpret_cast<Floats>(bits | 0x80000000));
  const Words one = reinterpret_cast<Words>(Floats{} + 1.0f);
  const Words numerator = where_below(sign, Words{} + 1, one, reinterpret_cast<Words>(power));
  return reinterpret_cast<Floats>(numerator) / (1.0f + power);
}

/// Replaces scores, whole vectors of them, by exp(score - largest), where `largest` becomes the largest of them;
/// returns the sum.
inline float exponentials(float* scores, std::int64_t size, float& largest) {
  Floats most = widen(scores);
  for (std::int64_t i = kLanes; i < size; i += kLanes) {
    const Floats value = widen(scores + i);
    most = value > most ? value : most;
  }
  largest = most[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  Floats sums = {};
  for (std::int64_t i = 0; i < size; i += kLanes) {
    const Floats value = exp_of_negative(widen(scores + i) - largest);
    narrow(value, scores + i);
    sums += value;
  }
  return sum_lanes(sums);
}

/// Lane n < 8 is the sum of the lanes of values[n], always in the same order.
inline Floats sum_lanes_of_8(const Floats (&values)[8]) {
  Floats pairs[4], fours[2];  // each step halves the lanes of a value
  for (int i = 0; i < 4; ++i) {
    const Floats a = values[2 * i], b = values[2 * i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    const Floats a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
  const Floats a = fours[0], b = fours[1];
  const Floats twos = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
                      __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
  return __builtin_shufflevector(twos, twos, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(twos, twos, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15);
}

}  // namespace
}  // namespace ilme::kernels::cpu
