// The gradient of a token embedding: added into a float32 sum that exists, as with tied embeddings where the head's
// gradient is there already, against autograd's dense gradient that is added to it afterwards. Bytes are those that the
// first must move: a token's gradient read, its row of the sum read and written.
#include <cstdint>
#include <tuple>

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <ilme/ops/embedding.hpp>
#include <ilme/optim/gradient_sink.hpp>

#include "row_shapes.hpp"

namespace {

/// Arguments: tokens, size, vocabulary. The weight is bf16; ids are Zipf-like: few ids are most tokens.
template <at::Tensor (*Embedding)(const at::Tensor&, const at::Tensor&)>
void embedding(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), size = state.range(1), vocabulary = state.range(2);
  const at::Tensor weight = at::zeros({vocabulary, size}, at::kBFloat16).requires_grad_();
  const at::Tensor ids = at::rand({tokens}).pow(4).mul(static_cast<double>(vocabulary - 1)).to(at::kLong);
  const at::Tensor dout = at::randn({tokens, size}).to(at::kBFloat16);
  const ilme::optim::GradientSink sink({weight});
  ilme::ops::gradient_receiver(weight)->take(at::zeros({vocabulary, size}));
  for (auto _ : state) Embedding(weight, ids).backward(dout);
  const std::int64_t elements = state.iterations() * tokens * size;
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * (2 + 4 + 4));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "size", "vocabulary"})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinWarmUpTime(0.1)
      ->MinTime(0.2);
  for (const auto& [tokens, size, vocabulary] :
       {std::tuple{512, 1024, 32000}, std::tuple{2048, 2048, 32000}, std::tuple{2048, 2048, 128256},
        std::tuple{8192, 4096, 32000}, std::tuple{32768, 1024, 32000}}) {
    benchmark->Args({tokens, size, vocabulary});
  }
}

BENCHMARK(embedding<ilme::ops::embedding>)->Name("kernel")->Apply(shapes);
BENCHMARK(embedding<ilme::ops::embedding_reference>)->Name("dense")->Apply(shapes);

}  // namespace

int main(int argc, char** argv) { return ilme::bench::run(argc, argv); }
