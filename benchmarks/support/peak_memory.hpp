/// What one call adds to the memory of tensors at its highest.
#pragma once

#include <cstdint>
#include <utility>

#include <ilme/ops/memory.hpp>

namespace ilme::benchmarks {

/// The most bytes that tensors hold during `call` beyond those that they held before it.
template <class Call>
std::int64_t peak_bytes(Call&& call) {
  ops::count_tensor_memory();
  const ops::MemoryPhase phase;
  std::forward<Call>(call)();
  return phase.peak_bytes() - phase.start_bytes();
}

}  // namespace ilme::benchmarks
