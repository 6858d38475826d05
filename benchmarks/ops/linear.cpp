// The product of a few rows with a weight, as in generation: the kernel of ilme::kernels against at::linear. The
// weights take turns so that each is read from memory, as in a model.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include <ilme/ops/linear.hpp>

namespace {

at::Tensor aten(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias);
}

/// Arguments: rows, in, out, dtype (0 float32, 1 bf16). Counts the bytes of the weight.
template <at::Tensor (*Linear)(const at::Tensor&, const at::Tensor&, const at::Tensor&)>
void linear(benchmark::State& state) {
  const at::NoGradGuard no_gradient;
  const std::int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const at::ScalarType type = state.range(3) == 0 ? at::kFloat : at::kBFloat16;
  const at::Tensor x = at::randn({rows, in}).to(type);
  std::vector<at::Tensor> weights;
  for (std::int64_t bytes = 0; bytes < (128 << 20); bytes += static_cast<std::int64_t>(weights.back().nbytes())) {
    weights.push_back(at::randn({out, in}).to(type));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const at::Tensor y = Linear(x, weights[next++ % weights.size()], {});
    benchmark::DoNotOptimize(y.const_data_ptr());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(weights[0].nbytes()));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out", "bf16"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const int type : {1, 0}) {
    for (const int rows : {1, 2, 4, 8, 16}) {
      benchmark->Args({rows, 576, 1536, type})->Args({rows, 2048, 8192, type});
    }
  }
}

BENCHMARK(linear<ilme::ops::linear>)->Name("kernel")->Apply(shapes);
BENCHMARK(linear<aten>)->Name("aten")->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
