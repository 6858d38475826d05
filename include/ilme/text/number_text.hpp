/// Numbers as people read them in tables and on pages.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

namespace ilme::text {

/// "12,345": rounded, with commas between thousands.
inline std::string with_commas(double value) {
  std::string digits = std::to_string(std::llround(value));
  for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-';) digits.insert(at -= 3, 1, ',');
  return digits;
}

/// "1.360": with that many decimals.
inline std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

}  // namespace ilme::text
