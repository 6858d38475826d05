/// Hashes for tables in memory and for fingerprints in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <ilme/core/random.hpp>

namespace ilme::text {

namespace detail {

/// Both halves of a 64 x 64 bit product, folded.
inline std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

template <class Word>
Word load_word(const char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace detail

/// A 64-bit hash of bytes for tables in memory (it may differ between machines).
inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kFirst = 0xD6E8FEB86659FD93ULL, kSecond = 0xA0761D6478BD642FULL;
  const char* p = bytes.data();
  std::size_t size = bytes.size();
  std::uint64_t state = kFirst * (size + 1);
  for (; size > 16; p += 16, size -= 16) {
    state = detail::fold_product(detail::load_word<std::uint64_t>(p) ^ kSecond,
                                 detail::load_word<std::uint64_t>(p + 8) ^ state);
  }
  std::uint64_t head = 0, tail = 0;
  if (size >= 8) {
    head = detail::load_word<std::uint64_t>(p);
    tail = detail::load_word<std::uint64_t>(p + size - 8);
  } else if (size >= 4) {
    head = detail::load_word<std::uint32_t>(p);
    tail = detail::load_word<std::uint32_t>(p + size - 4);
  } else if (size > 0) {
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])}; };
    head = byte(0) << 16 | byte(size / 2) << 8 | byte(size - 1);
  }
  return detail::fold_product(head ^ kSecond, tail ^ state ^ kFirst);
}

/// A 64-bit hash of a pair of ids, spread over all bits.
inline std::uint64_t hash_pair(std::uint64_t pair) {
  return detail::fold_product(pair ^ 0x9E3779B97F4A7C15ULL, 0xD6E8FEB86659FD93ULL);
}

/// A 128-bit hash of a sequence of fields, the same on every machine; not meant to withstand an adversary.
class Fingerprint {
 public:
  void add(std::uint64_t value) {
    low_ = mix64(low_ ^ value);
    high_ = mix64(high_ + (value ^ 0x5851F42D4C957F2DULL));
  }
  void add(std::string_view bytes) {
    add(std::uint64_t{bytes.size()});
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      std::uint64_t word = 0;
      for (std::size_t j = i; j < bytes.size() && j < i + 8; ++j) {
        word |= std::uint64_t{static_cast<unsigned char>(bytes[j])} << (8 * (j - i));
      }
      add(word);
    }
  }
  /// 32 hexadecimal digits.
  std::string hex() const {
    std::string text;
    for (const std::uint64_t half : {high_, low_}) {
      for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
    }
    return text;
  }

 private:
  std::uint64_t low_ = 1, high_ = 2;
};

}  // namespace ilme::text
