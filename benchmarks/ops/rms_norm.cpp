// RMSNorm, forward and backward: the kernel of ilme::kernels against the composed ATen operations.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/ops/rms_norm.hpp>

namespace {

/// Arguments: rows, size, dtype (0 float32, 1 bf16), whether the backward runs too.
template <at::Tensor (*Norm)(const at::Tensor&, const at::Tensor&, double)>
void rms_norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0), size = state.range(1);
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const at::Tensor x = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor weight = at::ones({size}, type).requires_grad_(backward);
  const at::Tensor dy = at::randn({rows, size}).to(type);
  for (auto _ : state) {
    const at::Tensor y = Norm(x, weight, 1e-5);
    if (backward) {
      x.mutable_grad() = weight.mutable_grad() = at::Tensor();
      y.backward(dy);
    }
    benchmark::DoNotOptimize(y.const_data_ptr());
  }
  state.SetItemsProcessed(state.iterations() * rows * size);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "size", "bf16", "backward"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const int type : {0, 1}) {
    for (const int backward : {0, 1}) benchmark->Args({1024, 2048, type, backward});
  }
}

BENCHMARK(rms_norm<ilme::ops::rms_norm>)->Name("kernel")->Apply(shapes);
BENCHMARK(rms_norm<ilme::ops::rms_norm_reference>)->Name("aten")->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
