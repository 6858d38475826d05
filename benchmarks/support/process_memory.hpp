/// Resident memory of this process, as Linux counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace ilme::benchmarks {

struct ProcessMemory {
  std::int64_t resident = read("VmRSS:");  ///< bytes now
  std::int64_t peak = read("VmHWM:");      ///< the most so far

 private:
  static std::int64_t read(const std::string& key) {
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word) {
      std::int64_t kilobytes = 0;
      if (word == key && status >> kilobytes) return kilobytes * 1024;
    }
    return 0;
  }
};

}  // namespace ilme::benchmarks
