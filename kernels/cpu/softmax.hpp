/// Online softmax of a row of logits (Milakov & Gimelshein 2018), for the sources that are compiled once for every
/// instruction set; see vectors.hpp.
#pragma once

#include <cstdint>

#include "vectors.hpp"

namespace ilme::kernels::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

/// The first `count` lanes of value; minus infinity, which no softmax sees, in the rest.
inline Floats first_lanes(Floats value, std::int64_t count) {
  for (std::int64_t lane = count; lane < kLanes; ++lane) value[lane] = -kInfinity;
  return value;
}

inline float largest_lane(Floats value) {
  float largest = value[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) largest = value[lane] > largest ? value[lane] : largest;
  return largest;
}

/// The hyperbolic tangent, to about 1e-7.
inline Floats tanh_of(Floats x) {
  const Words bits = reinterpret_cast<Words>(x), sign = bits & 0x80000000u;
  const Floats power = exp_of_negative(-2.0f * reinterpret_cast<Floats>(bits ^ sign));  // exp(-2 |x|)
  const Floats tangent = (1.0f - power) / (1.0f + power);
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(tangent) | sign);
}

/// The logits as the softmax sees them: c(x), and its slope for the gradient.
struct Plain {
  Floats value(Floats x) const { return x; }
  Floats slope(Floats) const { return Floats{} + 1.0f; }
};
struct SoftCapped {
  float cap, inverse;
  explicit SoftCapped(float c) : cap(c), inverse(1.0f / c) {}
  Floats value(Floats x) const { return cap * tanh_of(x * inverse); }
  Floats slope(Floats value) const { return 1.0f - (value * inverse) * (value * inverse); }
};

/// The logarithm of the sum of exponentials of what comes, a block at a time: every logit is read from memory once and
/// has one exponential. NaN and plus infinity among the logits make it NaN; minus infinity counts nothing.
class OnlineSoftmax {
 public:
  static constexpr std::int64_t kBlock = 1024;

  /// Takes `size` values, at most kBlock; value(load, offset) gives the vector at an offset.
  template <class Value>
  void add(std::int64_t size, Value value) {
    alignas(64) float block[kBlock];
    Floats most = Floats{} + largest_;
    for_each_vector(size, [&](auto load, auto, std::int64_t at) {
      Floats v = value(load, at);
      if (size - at < kLanes) v = first_lanes(v, size - at);
      narrow(v, block + at);
      most = v > most ? v : most;
    });
    const float largest = largest_lane(most);
    if (largest > largest_) sum_ *= exp_of_negative(Floats{} + (largest_ - largest));
    largest_ = largest;
    const float shift = largest == -kInfinity ? 0.0f : largest;
    for (std::int64_t at = 0; at < size; at += kLanes) sum_ += exp_of_negative(widen(block + at) - shift);
  }

  float log_normalizer() const { return largest_ + __builtin_logf(sum_lanes(sum_)); }

 private:
  float largest_ = -kInfinity;
  Floats sum_ = {};
};

}  // namespace
}  // namespace ilme::kernels::cpu
