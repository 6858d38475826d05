// Cross-entropy over logits that exist as a whole, forward and backward: the kernel of ilme::kernels against ATen's
// cross_entropy_loss over float32 logits, as Transformers computes it.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/core/allocator.hpp>
#include <ilme/ops/cross_entropy.hpp>

#include "../support/peak_memory.hpp"

namespace {

using ilme::ops::CrossEntropyOptions;
using ilme::ops::LossSum;

/// Arguments: rows, vocabulary, dtype (0 float32, 1 bf16), whether every term of the loss is there.
template <LossSum (*CrossEntropy)(const at::Tensor&, const at::Tensor&, const CrossEntropyOptions&)>
void cross_entropy(benchmark::State& state) {
  const std::int64_t rows = state.range(0), vocabulary = state.range(1);
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  CrossEntropyOptions options;
  if (state.range(3) != 0) options = {.label_smoothing = 0.1, .z_loss = 1e-4, .soft_cap = 30.0};
  const at::Tensor values = at::randn({rows, vocabulary}).to(type).requires_grad_();
  const at::Tensor labels = at::arange(rows, at::kLong) * 131 % vocabulary;
  const auto step = [&] {
    values.mutable_grad() = at::Tensor();
    const LossSum loss = CrossEntropy(values.view_as(values), labels, options);
    loss.sum.backward();
    benchmark::DoNotOptimize(loss.sum.const_data_ptr());
  };
  state.counters["peak_MB"] = static_cast<double>(ilme::benchmarks::peak_bytes(step)) / 1e6;
  for (auto _ : state) step();
  const std::int64_t elements = state.iterations() * rows * vocabulary;
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * static_cast<std::int64_t>(values.itemsize()) * 3);  // read twice, write once
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "vocabulary", "bf16", "terms"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int bf16 : {0, 1}) {
    benchmark->Args({512, 128256, bf16, 0})->Args({512, 128256, bf16, 1})->Args({2048, 32768, bf16, 0});
    benchmark->Args({256, 262144, bf16, 0});
  }
}

BENCHMARK(cross_entropy<ilme::ops::cross_entropy>)->Name("kernel")->Apply(shapes);
BENCHMARK(cross_entropy<ilme::ops::cross_entropy_reference>)->Name("aten")->Apply(shapes);

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
