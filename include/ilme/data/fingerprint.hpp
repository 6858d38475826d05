/// A 64-bit hash of bytes: tells contents apart, chooses documents. Not for security.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <ilme/core/random.hpp>

namespace ilme::data {

/// Mixes 8 bytes at a time with SplitMix64's finaliser; the same on every machine.
inline std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0) {
  std::uint64_t hash = mix64(seed ^ bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t count = bytes.size() < 8 ? bytes.size() : 8;
    std::memcpy(&word, bytes.data(), count);
    hash = mix64(hash ^ word);
    bytes.remove_prefix(count);
  }
  return hash;
}

/// A hash as 16 hexadecimal digits.
inline std::string hash_digits(std::uint64_t hash) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace ilme::data
