// RMSNorm, forward and backward: the kernel of ilme::kernels against the composed ATen operations. Bytes are those that
// the kernel moves: two tensors forward, three more backward.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/ops/rms_norm.hpp>

#include "row_shapes.hpp"

namespace {

template <at::Tensor (*Norm)(const at::Tensor&, const at::Tensor&, double)>
void rms_norm(benchmark::State& state) {
  const std::int64_t rows = state.range(0), size = state.range(1);
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const at::Tensor x = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor weight = at::ones({size}, type).requires_grad_(backward);
  const at::Tensor dy = at::randn({rows, size}).to(type);
  for (auto _ : state) {
    const at::Tensor y = Norm(x, weight, 1e-5);
    if (backward) {
      x.mutable_grad() = weight.mutable_grad() = at::Tensor();
      y.backward(dy);
    }
    benchmark::DoNotOptimize(y.const_data_ptr());
  }
  ilme::bench::count_streams(state, backward ? 5 : 2, x.element_size());
}

BENCHMARK(rms_norm<ilme::ops::rms_norm>)->Name("kernel")->Apply(ilme::bench::row_shapes);
BENCHMARK(rms_norm<ilme::ops::rms_norm_reference>)->Name("aten")->Apply(ilme::bench::row_shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
