/// Counter-based random numbers: the value depends on (seed, counters) alone, so a resumed run draws the same.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace ilme {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64-bit words that mixes every bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// 64 random bits for a seed and a list of counters, e.g. `random_bits(seed, epoch, index)`.
template <class... Counters>
constexpr std::uint64_t random_bits(std::uint64_t seed, Counters... counters) {
  std::uint64_t bits = mix64(seed);
  ((bits = mix64(bits ^ static_cast<std::uint64_t>(counters))), ...);
  return bits;
}

/// Uniform in [0, 1), 53 bits.
template <class... Counters>
constexpr double random_uniform(std::uint64_t seed, Counters... counters) {
  return static_cast<double>(random_bits(seed, counters...) >> 11) * 0x1.0p-53;
}

/// Shuffles `values` (Fisher-Yates), the same on every platform for the same (seed, stream).
template <class T>
void random_shuffle(std::span<T> values, std::uint64_t seed, std::uint64_t stream) {
  for (std::uint64_t i = values.size(); i > 1; --i) {
    // The high half of a 128-bit product maps 64 random bits to [0, i) with a bias below i / 2^64.
    const auto j = static_cast<std::uint64_t>((static_cast<unsigned __int128>(random_bits(seed, stream, i)) * i) >> 64);
    std::swap(values[i - 1], values[j]);
  }
}

/// A permutation of 0..count-1, the same on every platform for the same (seed, stream).
inline std::vector<std::uint64_t> random_permutation(std::uint64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  random_shuffle(std::span(order), seed, stream);
  return order;
}

}  // namespace ilme
