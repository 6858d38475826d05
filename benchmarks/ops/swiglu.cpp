// SwiGLU, forward and backward: the kernel of ilme::kernels against the composed ATen operations. Bytes are those that
// the kernel moves: three tensors forward, five more backward.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/ops/swiglu.hpp>

#include "row_shapes.hpp"

namespace {

template <at::Tensor (*Activation)(const at::Tensor&, const at::Tensor&)>
void swiglu(benchmark::State& state) {
  const std::int64_t rows = state.range(0), size = state.range(1);
  const at::ScalarType type = state.range(2) == 0 ? at::kFloat : at::kBFloat16;
  const bool backward = state.range(3) != 0;
  const at::Tensor gate = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor up = at::randn({rows, size}).to(type).requires_grad_(backward);
  const at::Tensor dout = at::randn({rows, size}).to(type);
  for (auto _ : state) {
    const at::Tensor out = Activation(gate, up);
    if (backward) {
      gate.mutable_grad() = up.mutable_grad() = at::Tensor();
      out.backward(dout);
    }
    benchmark::DoNotOptimize(out.const_data_ptr());
  }
  ilme::bench::count_streams(state, backward ? 8 : 3, gate.element_size());
}

BENCHMARK(swiglu<ilme::ops::swiglu>)->Name("kernel")->Apply(ilme::bench::row_shapes);
BENCHMARK(swiglu<ilme::ops::swiglu_reference>)->Name("aten")->Apply(ilme::bench::row_shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
