// The optimizer: AdamW in one pass (ilme::kernels) against at::_fused_adamw_ and the copy of the master into the
// parameter, and the gradient norm. Bytes are those that one pass must move.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include <ilme/ops/adamw_step.hpp>
#include <ilme/optim/clip.hpp>

#include "../support/peak_memory.hpp"

namespace {

enum Mode : std::int64_t { float32, masters, stochastic };  // what the argument "mode" means

/// As many equal matrices as hold `millions` of elements, of one million each.
std::vector<ilme::ops::AdamWTensors> parameters(std::int64_t millions, Mode mode) {
  std::vector<ilme::ops::AdamWTensors> all;
  for (std::int64_t i = 0; i < millions; ++i) {
    ilme::ops::AdamWTensors t;
    t.parameter = at::randn({1024, 1024}).to(mode == float32 ? at::kFloat : at::kBFloat16);
    t.gradient = at::randn({1024, 1024});
    if (mode == masters) t.master = t.parameter.to(at::kFloat);
    t.exp_avg = at::zeros({1024, 1024}, mode == stochastic ? at::kBFloat16 : at::kFloat);
    t.exp_avg_sq = at::zeros({1024, 1024});
    t.learning_rate = 1e-4;
    t.weight_decay = 0.1;
    all.push_back(t);
  }
  return all;
}

void count(benchmark::State& state, std::int64_t bytes_an_element) {
  const std::int64_t elements = state.iterations() * state.range(0) * 1024 * 1024;
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * bytes_an_element);
}
constexpr std::int64_t kBytes[] = {4 + 3 * 8, 4 + 3 * 8 + 2, 4 + 8 + 2 * 4};  // by mode

template <class Call>
void count_peak(benchmark::State& state, Call call) {
  state.counters["peak_bytes"] = static_cast<double>(ilme::benchmarks::peak_bytes(call));
}

void one_pass(benchmark::State& state) {
  const Mode mode = static_cast<Mode>(state.range(1));
  auto all = parameters(state.range(0), mode);
  const at::Tensor divisor = at::scalar_tensor(1.5, at::kFloat);
  for (auto _ : state) ilme::ops::adamw_step(all, {}, divisor);
  count_peak(state, [&] { ilme::ops::adamw_step(all, {}, divisor); });
  count(state, kBytes[mode]);
}

void fused_adamw_and_copy(benchmark::State& state) {
  const Mode mode = static_cast<Mode>(state.range(1));
  auto all = parameters(state.range(0), mode);
  const at::Tensor divisor = at::scalar_tensor(1.0, at::kFloat);  // it overwrites the gradients
  std::vector<at::Tensor> values, gradients, exp_avgs, exp_avg_sqs, steps;
  for (const auto& t : all) {
    values.push_back(t.master.defined() ? t.master : t.parameter);
    gradients.push_back(t.gradient);
    exp_avgs.push_back(t.exp_avg);
    exp_avg_sqs.push_back(t.exp_avg_sq);
    steps.push_back(at::ones({}));
  }
  for (auto _ : state) {
    at::_fused_adamw_(values, gradients, exp_avgs, exp_avg_sqs, {}, steps, 1e-4, 0.9, 0.95, 0.1, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false, divisor);
    for (const auto& t : all) {
      if (t.master.defined()) t.parameter.copy_(t.master);
    }
  }
  count(state, kBytes[mode]);
}

void composed(benchmark::State& state) {
  const Mode mode = static_cast<Mode>(state.range(1));
  auto all = parameters(state.range(0), mode);
  const at::Tensor divisor = at::scalar_tensor(1.5, at::kFloat);
  for (auto _ : state) ilme::ops::adamw_step_reference(all, {}, divisor);
  count_peak(state, [&] { ilme::ops::adamw_step_reference(all, {}, divisor); });
  count(state, kBytes[mode]);
}

void global_norm(benchmark::State& state) {
  std::vector<at::Tensor> gradients;
  for (std::int64_t i = 0; i < state.range(0); ++i) gradients.push_back(at::randn({1024, 1024}));
  for (auto _ : state) benchmark::DoNotOptimize(ilme::optim::global_norm(gradients).item<float>());
  count(state, 4);
}

void modes(benchmark::internal::Benchmark* benchmark, std::vector<std::int64_t> modes) {
  benchmark->ArgNames({"millions", "mode"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const std::int64_t mode : modes) benchmark->Args({64, mode});
}

BENCHMARK(one_pass)->Apply([](auto* b) { modes(b, {float32, masters, stochastic}); });
BENCHMARK(fused_adamw_and_copy)->Apply([](auto* b) { modes(b, {float32, masters}); });
BENCHMARK(composed)->Apply([](auto* b) { modes(b, {float32, masters, stochastic}); });
BENCHMARK(global_norm)->Arg(64)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
