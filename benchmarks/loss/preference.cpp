// Preference and distillation losses, forward and backward with the gradients of hidden states and head: fused in
// chunks against their twins over logits that exist as a whole.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/core/allocator.hpp>
#include <ilme/loss/preference.hpp>
#include <ilme/ops/linear_distillation.hpp>

#include "../support/peak_memory.hpp"

namespace {

using namespace ilme;

struct Batch {
  at::Tensor hidden, weight, labels;
  std::int64_t rows;

  /// Arguments: sequences, tokens a sequence (the first half is prompt), vocabulary, hidden size, dtype (0 float32, 1
  /// bf16).
  explicit Batch(const benchmark::State& state) {
    const std::int64_t sequences = state.range(0), length = state.range(1), vocabulary = state.range(2);
    const at::ScalarType type = state.range(4) == 0 ? at::kFloat : at::kBFloat16;
    hidden = at::randn({sequences, length, state.range(3)}).to(type).requires_grad_();
    weight = at::randn({vocabulary, state.range(3)}, type).mul_(0.02).requires_grad_();
    labels = (at::arange(sequences * length, at::kLong) * 131 % vocabulary).view({sequences, length});
    labels.slice(1, 0, length / 2).fill_(ops::kIgnoreIndex);
    rows = sequences * length;
  }
};

template <class Loss>
void measure(benchmark::State& state, const Batch& batch, Loss loss) {
  const auto step = [&] {
    batch.hidden.mutable_grad() = batch.weight.mutable_grad() = at::Tensor();
    const at::Tensor sum = loss();
    sum.backward();
    benchmark::DoNotOptimize(sum.const_data_ptr());
  };
  state.counters["peak_MB"] = static_cast<double>(benchmarks::peak_bytes(step)) / 1e6;
  for (auto _ : state) step();
  state.SetItemsProcessed(state.iterations() * batch.rows);
}

void dpo(benchmark::State& state, bool fused) {
  const Batch batch(state);
  const at::Tensor reference = at::full({batch.hidden.size(0)}, -50.0);
  measure(state, batch, [&] {
    const auto of = fused ? loss::sequence_log_probabilities : loss::sequence_log_probabilities_reference;
    return loss::Dpo{}(of(batch.hidden, batch.weight, batch.labels, {}), reference).sum;
  });
}

void distillation(benchmark::State& state, bool fused) {
  const Batch batch(state);
  const at::Tensor teacher = at::randn_like(batch.hidden.detach()), head = batch.weight.detach().roll(1, 0);
  measure(state, batch, [&] {
    const auto of = fused ? ops::linear_distillation : ops::linear_distillation_reference;
    return of(batch.hidden, batch.weight, teacher, head, batch.labels, {.temperature = 2.0}).sum;
  });
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"sequences", "length", "vocabulary", "hidden", "bf16"})->UseRealTime();
  benchmark->Unit(benchmark::kMillisecond)->MinTime(0.1);
  for (const int bf16 : {0, 1}) benchmark->Args({4, 256, 32768, 1024, bf16})->Args({4, 256, 128256, 1024, bf16});
}

BENCHMARK_CAPTURE(dpo, fused, true)->Apply(shapes);
BENCHMARK_CAPTURE(dpo, reference, false)->Apply(shapes);
BENCHMARK_CAPTURE(distillation, fused, true)->Apply(shapes);
BENCHMARK_CAPTURE(distillation, reference, false)->Apply(shapes);

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
