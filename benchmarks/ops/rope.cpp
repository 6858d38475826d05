// Rotary position embedding of queries and keys, forward and backward: the kernel of ilme::kernels against the composed
// ATen operations. A row is a token's queries and keys, four heads of queries to one of keys, 64 elements each; bytes
// are those that the kernel moves: both read and written, forward and again backward.
#include <utility>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <ilme/ops/rope.hpp>

#include "row_shapes.hpp"

namespace {

constexpr std::int64_t kHeadDim = 64;

template <std::pair<at::Tensor, at::Tensor> (*Rotate)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                      const at::Tensor&)>
void rope(benchmark::State& state) {
  const std::int64_t rows = state.range(0), kv_size = state.range(1) / 5 / kHeadDim * kHeadDim,
                     q_size = state.range(1) - kv_size;
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const at::Tensor q = at::randn({1, rows, q_size}).to(type).requires_grad_(backward);
  const at::Tensor k = at::randn({1, rows, kv_size}).to(type).requires_grad_(backward);
  const at::Tensor dq = at::randn_like(q.detach()), dk = at::randn_like(k.detach());
  const at::Tensor angles = at::randn({1, rows, kHeadDim / 2}).repeat({1, 1, 2}), cos = angles.cos(),
                   sin = angles.sin();
  for (auto _ : state) {
    const auto [rotated_q, rotated_k] = Rotate(q, k, cos, sin);
    if (backward) {
      q.mutable_grad() = k.mutable_grad() = at::Tensor();
      torch::autograd::backward({rotated_q, rotated_k}, {dq, dk});
    }
    benchmark::DoNotOptimize(rotated_q.const_data_ptr());
    benchmark::DoNotOptimize(rotated_k.const_data_ptr());
  }
  ilme::bench::count_streams(state, backward ? 4 : 2, q.element_size());
}

BENCHMARK(rope<ilme::ops::rope>)->Name("kernel")->Apply(ilme::bench::row_shapes);
BENCHMARK(rope<ilme::ops::rope_reference>)->Name("aten")->Apply(ilme::bench::row_shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
