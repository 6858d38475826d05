// The head and its cross-entropy, forward and backward with the gradients of both: fused in chunks, against the same
// over logits that exist as a whole, with ATen's loss over float32 logits (as Transformers computes it) and with the
// fused kernel over them. A sink takes the weight's gradient of the fused form in float32, as in training.
//
// A plain run takes a few minutes; `--large` adds sizes up to 32,768 rows and 262,144 tokens. What would not fit in
// memory is skipped.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/core/allocator.hpp>
#include <ilme/core/memory_size.hpp>
#include <ilme/ops/gradient_receiver.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>

#include "../support/peak_memory.hpp"

namespace {

using namespace ilme;

struct Sink : ops::GradientReceiver {
  at::Tensor sum;
  void take(at::Tensor gradient) override { sum = std::move(gradient); }
  Accumulator accumulator() override { return {sum, true}; }
  void operator()(const torch::autograd::Variable&) override {}
};

ops::LossSum fused(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) {
  return ops::linear_cross_entropy(hidden, weight, labels);
}
ops::LossSum whole(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) {
  return ops::cross_entropy(at::mm(hidden, weight.t()), labels);
}
ops::LossSum aten(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels) {
  return ops::linear_cross_entropy_reference(hidden, weight, labels);
}

/// Arguments: rows, vocabulary, hidden size, dtype (0 float32, 1 bf16), rows in a hundred whose label is ignored.
template <ops::LossSum (*Loss)(const at::Tensor&, const at::Tensor&, const at::Tensor&)>
void linear_cross_entropy(benchmark::State& state) {
  const std::int64_t rows = state.range(0), vocabulary = state.range(1), size = state.range(2);
  const at::ScalarType type = state.range(3) == 0 ? at::kFloat : at::kBFloat16;
  const std::int64_t itemsize = type == at::kFloat ? 4 : 2;
  // Inputs and the weight's gradient, and for the whole logits their gradient, with ATen's three float32 copies.
  const std::int64_t logits = Loss == fused ? 0 : rows * vocabulary * (Loss == aten ? 2 * itemsize + 12 : itemsize);
  if (static_cast<std::uint64_t>(vocabulary * size * (itemsize + 8) + logits) >
      available_memory().value_or(0) * 9 / 10) {
    return state.SkipWithError("does not fit in memory");
  }
  const at::Tensor hidden = at::randn({rows, size}).to(type).requires_grad_();
  const at::Tensor weight = at::randn({vocabulary, size}, type).mul_(0.02).requires_grad_();
  at::Tensor labels = at::arange(rows, at::kLong) * 131 % vocabulary;
  labels.masked_fill_(at::arange(rows, at::kLong).remainder(100).lt(state.range(4)), ops::kIgnoreIndex);
  auto owned = std::make_unique<Sink>();
  Sink& sink = *owned;
  if (Loss == fused) torch::autograd::impl::set_post_acc_grad_hooks(weight, std::move(owned));
  const auto step = [&] {
    hidden.mutable_grad() = weight.mutable_grad() = at::Tensor();
    if (Loss == fused) sink.sum = at::Tensor();
    const ops::LossSum loss = Loss(hidden, weight, labels);
    loss.sum.backward();
    benchmark::DoNotOptimize(loss.sum.const_data_ptr());
  };
  state.counters["peak_MB"] = static_cast<double>(benchmarks::peak_bytes(step)) / 1e6;
  for (auto _ : state) step();
  const double products = 3.0 * 2 * static_cast<double>(rows) * static_cast<double>(vocabulary * size);
  state.counters["GFLOP"] = benchmark::Counter(products * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.SetItemsProcessed(state.iterations() * rows);
}

bool large = false;

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "vocabulary", "hidden", "bf16", "ignored"})->UseRealTime();
  benchmark->Unit(benchmark::kMillisecond)->MinTime(0.1);
  for (const std::int64_t bf16 : {0, 1}) {
    benchmark->Args({512, 32768, 1024, bf16, 0})->Args({2048, 32768, 1024, bf16, 0});
    benchmark->Args({512, 128256, 1024, bf16, 0})->Args({1024, 128256, 1024, bf16, 50});
    if (!large) continue;
    benchmark->Args({2048, 128256, 2048, bf16, 0})->Args({8192, 128256, 2048, bf16, 0});
    benchmark->Args({512, 262144, 2048, bf16, 0})->Args({2048, 262144, 1024, bf16, 0});
    benchmark->Args({32768, 32768, 1024, bf16, 0})->Args({4096, 32768, 4096, bf16, 0});
  }
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--large") != 0) continue;
    large = true;
    std::rotate(argv + i, argv + i + 1, argv + argc--);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RegisterBenchmark("fused", linear_cross_entropy<fused>)->Apply(shapes);
  benchmark::RegisterBenchmark("whole", linear_cross_entropy<whole>)->Apply(shapes);
  benchmark::RegisterBenchmark("aten", linear_cross_entropy<aten>)->Apply(shapes);
  benchmark::RunSpecifiedBenchmarks();
}
