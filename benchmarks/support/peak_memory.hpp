/// What one call adds to the memory of the process at its highest.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <malloc.h>

#include "process_memory.hpp"

namespace ilme::benchmarks {

/// Bytes that `call` needs beyond what the process held before it (Linux; memory of earlier calls that the C library
/// kept is given back first).
template <class Call>
std::int64_t peak_bytes(Call&& call) {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const std::int64_t before = ProcessMemory().resident;
  call();
  return ProcessMemory().peak - before;
}

/// Bytes of memory that the machine can still give.
inline std::int64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return 0;
}

}  // namespace ilme::benchmarks
