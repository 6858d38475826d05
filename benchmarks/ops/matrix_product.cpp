// The products of a training step: ilme::kernels' blocked product against ATen's, and the weight gradient that is added
// in float32 against ATen's product in the operands' type that is added afterwards.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/ops/matrix_product.hpp>

#include "ops/row_shapes.hpp"

namespace {

namespace detail = ilme::ops::detail;

enum Form { kForward, kInputGradient, kWeightGradient };

at::Tensor aten_product(const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); }

void aten_add(at::Tensor& sum, const at::Tensor& dy, const at::Tensor& x) {
  sum.scalar_type() == x.scalar_type() ? sum.addmm_(dy.t(), x) : sum.add_(at::mm(dy.t(), x));
}

/// Arguments: rows, in, out, dtype (0 float32, 1 bf16), form.
template <bool kKernel>
void product(benchmark::State& state) {
  const std::int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  const at::ScalarType type = state.range(3) == 0 ? at::kFloat : at::kBFloat16;
  const auto form = static_cast<Form>(state.range(4));
  const at::Tensor x = at::randn({rows, in}).to(type), weight = at::randn({out, in}).to(type);
  const at::Tensor dy = at::randn({rows, out}).to(type);
  at::Tensor sum = at::zeros({out, in});
  if (kKernel && !detail::has_product_kernel(x, weight.t())) return state.SkipWithError("no kernel here");
  for (auto _ : state) {
    switch (form) {
      case kForward:
        benchmark::DoNotOptimize(kKernel ? detail::product(x, weight.t()) : aten_product(x, weight.t()));
        break;
      case kInputGradient:
        benchmark::DoNotOptimize(kKernel ? detail::product(dy, weight) : aten_product(dy, weight));
        break;
      case kWeightGradient:
        kKernel ? detail::add_product(sum, dy, x, /*overwrite=*/false) : aten_add(sum, dy, x);
        break;
    }
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(rows * in * out), benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out", "bf16", "form"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int type : {1, 0}) {
    for (const int form : {kForward, kInputGradient, kWeightGradient}) {
      benchmark->Args({2048, 2048, 2048, type, form});
      if (type == 1) benchmark->Args({2048, 2048, 8192, type, form})->Args({512, 576, 1536, type, form});
    }
  }
  // Few rows: where the kernel begins to be the faster one (kProductRows).
  for (const std::int64_t rows : {128, 256}) benchmark->Args({rows, 2048, 2048, 1, kForward});
}

BENCHMARK(product<true>)->Name("kernel")->Apply(shapes);
BENCHMARK(product<false>)->Name("aten")->Apply(shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
