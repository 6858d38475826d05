/// What the benchmarks of row-wise operations share: the shapes, and their main().
#pragma once

#include <cstdint>
#include <utility>

#include <benchmark/benchmark.h>

#include <ilme/core/allocator.hpp>

namespace ilme::bench {

/// Arguments: rows (tokens), size (of a row), dtype (0 float32, 1 bf16), whether the backward runs too.
inline void row_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "size", "bf16", "backward"})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinWarmUpTime(0.1)
      ->MinTime(0.2);
  for (const int backward : {0, 1}) {
    for (const auto& [rows, size] : {std::pair{512, 1024}, std::pair{2048, 2048}, std::pair{2048, 4096},
                                     std::pair{8192, 2048}, std::pair{32768, 1024}}) {
      benchmark->Args({rows, size, 1, backward});
    }
    benchmark->Args({2048, 2048, 0, backward});
  }
}

/// Bytes a second and elements a second, for an operation that reads or writes `streams` tensors of rows x size
/// elements of so many bytes.
inline void count_streams(benchmark::State& state, std::int64_t streams, std::int64_t element_size) {
  const std::int64_t elements = state.iterations() * state.range(0) * state.range(1);
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * streams * element_size);
}

/// main() as in a training program, which keeps large freed blocks.
inline int run(int argc, char** argv) {
  reuse_large_allocations();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace ilme::bench
