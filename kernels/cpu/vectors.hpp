/// Vectors of 16 floats for the sources that are compiled once for every instruction set. The compiler makes them one
/// register with AVX-512, two with AVX2, four with SSE2 or NEON. Everything is in an unnamed namespace: with external
/// linkage the linker could take a function from the AVX-512 object for the whole program.
#pragma once

#include <cstdint>

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
typedef std::uint16_t Shorts __attribute__((vector_size(32)));

struct BFloat16 {
  std::uint16_t bits;
};
#if defined(__FLT16_MAX__)
typedef _Float16 Half;
#else
typedef __fp16 Half;
#endif

inline Floats widen(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline Floats widen(const BFloat16* from) {
  Shorts bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}
inline Floats widen(const Half* from) {
  Floats value;
#if defined(__AVX512F__)
  Shorts bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  value = reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xFFFF, reinterpret_cast<__m256i>(bits)));
#else
  for (std::int64_t lane = 0; lane < kLanes; ++lane) value[lane] = static_cast<float>(from[lane]);
#endif
  return value;
}

inline void narrow(Floats value, float* to) { __builtin_memcpy(to, &value, sizeof value); }
inline void narrow(Floats value, BFloat16* to) {  // to nearest, ties to even
  const Words word = reinterpret_cast<Words>(value);
  const Words rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
  const Words quiet = (word >> 16) | 0x40;  // rounding could carry a NaN to infinity
  const Shorts bits = __builtin_convertvector((word & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded, Shorts);
  __builtin_memcpy(to, &bits, sizeof bits);
}
inline void narrow(Floats value, Half* to) {
  for (std::int64_t lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<Half>(value[lane]);
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
  const Words power = (reinterpret_cast<Words>(shifted) + 127) << 23;  // the shifted number's own bits fall off
  const Floats value = series * reinterpret_cast<Floats>(power);
  return x < -87.0f ? Floats{} : value;
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
