// Packed causal attention, forward and backward: the kernel of ilme::kernels against one SDPA call a document.
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/core/random.hpp>
#include <ilme/ops/attention.hpp>

namespace {

constexpr std::int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;

/// Documents of `length` tokens, or with 0 of the lengths of short texts: 3 to 100, 26 on average.
std::vector<std::int64_t> documents(std::int64_t tokens, std::int64_t length) {
  std::vector<std::int64_t> offsets{0};
  for (std::uint64_t i = 0; offsets.back() < tokens; ++i) {
    const double u = ilme::random_uniform(1, i);
    const auto next = length > 0 ? length : static_cast<std::int64_t>(3 + 97 * u * u * u);
    offsets.push_back(std::min(tokens, offsets.back() + next));
  }
  return offsets;
}

/// Arguments: tokens, tokens a document, dtype (0 float32, 1 bf16), whether the backward runs too.
template <at::Tensor (*Attention)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const std::vector<std::int64_t>&)>
void attention(benchmark::State& state) {
  const std::int64_t tokens = state.range(0);
  const auto offsets = documents(tokens, state.range(1));
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const auto input = [&](std::int64_t heads) {
    return at::randn({tokens, heads, kHeadDim}).to(type).requires_grad_(backward);
  };
  const at::Tensor q = input(kHeads), k = input(kKvHeads), v = input(kKvHeads);
  const at::Tensor up = at::randn({tokens, kHeads, kHeadDim}).to(type);
  for (auto _ : state) {
    const at::Tensor out = Attention(q, k, v, offsets);
    if (backward) {
      q.mutable_grad() = k.mutable_grad() = v.mutable_grad() = at::Tensor();
      out.backward(up);
    }
    benchmark::DoNotOptimize(out.const_data_ptr());
  }
  state.SetItemsProcessed(state.iterations() * tokens);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "document", "bf16", "backward"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int document : {0, 512, 2048}) {
    for (const int type : {0, 1}) {
      for (const int backward : {0, 1}) benchmark->Args({2048, document, type, backward});
    }
  }
}

BENCHMARK(attention<ilme::ops::attention>)->Name("kernel")->Apply(shapes);
BENCHMARK(attention<ilme::ops::attention_reference>)->Name("sdpa")->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
