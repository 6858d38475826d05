// Forward and backward of RMSNorm over a range of rows. ILME_ROWS names the result: the build compiles this file for
// the baseline, AVX2 and AVX-512. It includes nothing with inline functions, which the linker could take from the
// AVX-512 object for the whole program.
//
// Traffic: forward reads x twice (the second time from cache) and writes y; backward reads dy and x twice, writes dx.
// Vectors of 16 floats are the compiler's: one register with AVX-512, two with AVX2, four with SSE2 or NEON.
#include "rms_norm_rows.hpp"

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

Floats widen(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
Floats widen(const BFloat16* from) {
  Shorts bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}
Floats widen(const Half* from) {
  Floats value;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) value[lane] = static_cast<float>(from[lane]);
  return value;
}

void narrow(Floats value, float* to) { __builtin_memcpy(to, &value, sizeof value); }
void narrow(Floats value, BFloat16* to) {  // to nearest, ties to even
  const Words word = reinterpret_cast<Words>(value);
  const Words rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
  const Words quiet = (word >> 16) | 0x40;  // rounding could carry a NaN to infinity
  const Shorts bits = __builtin_convertvector((word & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded, Shorts);
  __builtin_memcpy(to, &bits, sizeof bits);
}
void narrow(Floats value, Half* to) {
  for (std::int64_t lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<Half>(value[lane]);
}

template <class T>
Floats round_to(Floats value) {
  T rounded[kLanes];
  narrow(value, rounded);
  return widen(rounded);
}
template <>
Floats round_to<float>(Floats value) {
  return value;
}

/// The last elements of a row, fewer than a vector; the rest is zero.
template <class T>
Floats widen_part(const T* from, std::int64_t count) {
  T whole[kLanes] = {};
  __builtin_memcpy(whole, from, static_cast<std::size_t>(count) * sizeof(T));
  return widen(whole);
}
template <class T>
void narrow_part(Floats value, T* to, std::int64_t count) {
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

float sum_lanes(Floats value) {
  float sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += value[lane];
  return sum;
}

template <class T>
void forward_rows(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  const T* const weight = static_cast<const T*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.size;
    T* const y = static_cast<T*>(a.y) + row * a.size;
    Floats squares = {};
    for_each_vector(a.size, [&](auto load, auto, std::int64_t at) {
      const Floats v = load(x + at);
      squares += v * v;
    });
    const float inv_rms = 1.0f / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(a.size) + a.eps);
    if (a.inv_rms != nullptr) a.inv_rms[row] = inv_rms;
    for_each_vector(a.size, [&](auto load, auto store, std::int64_t at) {
      store(round_to<T>(load(x + at) * inv_rms) * load(weight + at), y + at);
    });
  }
}

template <class T>
void backward_rows(const RmsNormBackward& a, float* dweight, std::int64_t begin, std::int64_t end) {
  const T* const weight = static_cast<const T*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* const x = static_cast<const T*>(a.x) + row * a.size;
    const T* const dy = static_cast<const T*>(a.dy) + row * a.size;
    T* const dx = static_cast<T*>(a.dx) + row * a.size;
    const float inv_rms = a.inv_rms[row];
    Floats products = {};
    for_each_vector(a.size, [&](auto load, auto, std::int64_t at) {
      products += load(dy + at) * load(weight + at) * load(x + at);
    });
    const float mean = sum_lanes(products) * inv_rms / static_cast<float>(a.size);
    for_each_vector(a.size, [&](auto load, auto store, std::int64_t at) {
      const Floats normal = load(x + at) * inv_rms, gradient = load(dy + at);
      store(inv_rms * (gradient * load(weight + at) - normal * mean), dx + at);
      if (dweight != nullptr) store(load(dweight + at) + gradient * normal, dweight + at);
    });
  }
}

void forward(const RmsNormForward& a, std::int64_t begin, std::int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return forward_rows<float>(a, begin, end);
    case DType::bfloat16:
      return forward_rows<BFloat16>(a, begin, end);
    case DType::float16:
      return forward_rows<Half>(a, begin, end);
  }
}

void backward(const RmsNormBackward& a, float* dweight, std::int64_t begin, std::int64_t end) {
  switch (a.dtype) {
    case DType::float32:
      return backward_rows<float>(a, dweight, begin, end);
    case DType::bfloat16:
      return backward_rows<BFloat16>(a, dweight, begin, end);
    case DType::float16:
      return backward_rows<Half>(a, dweight, begin, end);
  }
}

}  // namespace

const RmsNormRows ILME_ROWS = {forward, backward};

}  // namespace ilme::kernels::cpu
