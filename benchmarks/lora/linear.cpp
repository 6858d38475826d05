// A linear map with a LoRA adapter, forward and backward, against the map by itself: with its weight trained, with its
// weight frozen (only the gradient of x, which the adapter needs too), and with the adapter merged (forward alone: what
// generation runs). bf16; items are tokens, bytes those of the weights that are read, once a product.
#include <cstdint>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>

#include <ilme/core/allocator.hpp>
#include <ilme/lora/lora.hpp>
#include <ilme/nn/linear.hpp>

namespace {

using Lora = ilme::lora::Lora<ilme::nn::Linear>;

enum class Form { trained, frozen, adapter, merged };

/// Arguments: tokens, in, out, rank, whether the backward runs too.
void linear(benchmark::State& state, Form form) {
  const std::int64_t tokens = state.range(0), in = state.range(1), out = state.range(2), rank = state.range(3);
  const bool backward = state.range(4) != 0;
  Lora map(in, out, at::kBFloat16);
  {
    const c10::NoGradGuard no_gradient;
    map.weight.normal_(0.0, 0.02);
    map.weight.requires_grad_(form == Form::trained);
    if (form == Form::adapter || form == Form::merged) {
      map.attach({rank, 2.0});
      map.lora_B->weight.normal_(0.0, 0.02);
    }
    if (form == Form::merged) {
      map.weight.copy_(map.merged_weight());
      map.detach_adapter();
    }
  }
  const at::Tensor x = at::randn({tokens, in}).to(at::kBFloat16).requires_grad_(backward);
  const at::Tensor dy = at::randn({tokens, out}).to(at::kBFloat16);
  const c10::AutoGradMode gradients(backward);
  for (auto _ : state) {
    const at::Tensor y = map.forward(x);
    if (backward) {
      x.mutable_grad() = at::Tensor();
      for (const at::Tensor& parameter : map.parameters()) parameter.mutable_grad() = at::Tensor();
      y.backward(dy);
    }
    benchmark::DoNotOptimize(y.const_data_ptr());
  }
  state.SetItemsProcessed(state.iterations() * tokens);
  const std::int64_t products = backward ? 2 : 1, adapter = map.attached() ? rank * (in + out) : 0;
  state.SetBytesProcessed(state.iterations() * products * (in * out + adapter) * 2);
}

void with_backward(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "in", "out", "rank", "backward"})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.2);
  for (const int rank : {8, 64}) benchmark->Args({512, 2048, 2048, rank, 1});
  benchmark->Args({2048, 2048, 8192, 16, 1});
}

void forward_alone(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "in", "out", "rank", "backward"})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.2);
  for (const int tokens : {1, 512}) benchmark->Args({tokens, 2048, 2048, 16, 0});
}

BENCHMARK_CAPTURE(linear, trained, Form::trained)->Name("plain")->Apply(with_backward);
BENCHMARK_CAPTURE(linear, frozen, Form::frozen)->Name("frozen")->Apply(with_backward);
BENCHMARK_CAPTURE(linear, adapter, Form::adapter)->Name("lora")->Apply(with_backward);
BENCHMARK_CAPTURE(linear, merged_forward, Form::merged)->Name("merged")->Apply(forward_alone);
BENCHMARK_CAPTURE(linear, adapter_forward, Form::adapter)->Name("lora")->Apply(forward_alone);

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
