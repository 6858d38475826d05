// Residual addition and RMSNorm, forward and backward: the kernel of ilme::kernels against the addition and the kernel
// of the norm by themselves, and against the composed ATen operations. Bytes are those that the kernel moves: four
// tensors forward, four more backward.
#include <utility>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <ilme/ops/rms_norm.hpp>

#include "row_shapes.hpp"

namespace {

std::pair<at::Tensor, at::Tensor> apart(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& weight,
                                        double eps) {
  const at::Tensor sum = x + branch;
  return {sum, ilme::ops::rms_norm(sum, weight, eps)};
}

template <std::pair<at::Tensor, at::Tensor> (*Norm)(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>
void add_rms_norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0), size = state.range(1);
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const at::Tensor x = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor branch = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor weight = at::ones({size}, type).requires_grad_(backward);
  const at::Tensor dsum = at::randn({rows, size}).to(type), dy = at::randn({rows, size}).to(type);
  for (auto _ : state) {
    const auto [sum, y] = Norm(x, branch, weight, 1e-5);
    if (backward) {
      x.mutable_grad() = branch.mutable_grad() = weight.mutable_grad() = at::Tensor();
      torch::autograd::backward({sum, y}, {dsum, dy});
    }
    benchmark::DoNotOptimize(sum.const_data_ptr());
    benchmark::DoNotOptimize(y.const_data_ptr());
  }
  ilme::bench::count_streams(state, backward ? 8 : 4, x.element_size());
}

BENCHMARK(add_rms_norm<ilme::ops::add_rms_norm>)->Name("kernel")->Apply(ilme::bench::row_shapes);
BENCHMARK(add_rms_norm<apart>)->Name("apart")->Apply(ilme::bench::row_shapes);
BENCHMARK(add_rms_norm<ilme::ops::add_rms_norm_reference>)->Name("aten")->Apply(ilme::bench::row_shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
