#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/gradient_sink.hpp>
#include <ilme/optim/optimizer_in_backward.hpp>

using namespace ilme::optim;
using ilme::test::leaf;
using ilme::test::random;

static_assert(SingleParameterOptimizer<AdamW>);

namespace {

constexpr std::int64_t kSize = 256, kLayers = 12, kBytes = kSize * kSize * 4;

/// A chain of square maps; the first is used twice, as tied embeddings are.
struct Chain {
  explicit Chain(AdamWState state = AdamWState::masters, at::ScalarType type = at::kFloat) {
    for (std::int64_t i = 0; i < kLayers; ++i) {
      weights.push_back(leaf(random({kSize, kSize}, at::kDouble, 7 + static_cast<std::uint64_t>(i)) / 16, type));
      named.emplace_back(ilme::concat("w", i), weights.back());
    }
    optimizer.emplace(named, AdamWOptions{.state = state, .seed = 3});
    sink.emplace(weights);
  }
  at::Tensor loss(std::uint64_t step) const {
    at::Tensor x = random({4, kSize}, weights[0].scalar_type(), step);
    for (const at::Tensor& weight : weights) x = at::tanh(at::mm(x, weight));
    return at::mm(x, weights[0].t()).pow(2).sum();
  }
  std::vector<at::Tensor> weights;
  NamedParameters named;
  std::optional<AdamW> optimizer;
  std::optional<GradientSink> sink;
};

}  // namespace

TEST_CASE("an optimizer in backward gives the ordinary step, bit for bit, with one or two gradients at a time") {
  ilme::ops::count_tensor_memory();
  const std::string name = GENERATE("fp32", "masters", "bf16");
  const AdamWState state = name == "bf16" ? AdamWState::bf16 : AdamWState::masters;
  const at::ScalarType type = name == "fp32" ? at::kFloat : at::kBFloat16;
  const at::Tensor divisor = at::scalar_tensor(3.0, at::kFloat);
  Chain ordinary(state, type), early(state, type);
  OptimizerInBackward in_backward(*early.sink, *early.optimizer);
  for (std::uint64_t step = 0; step < 4; ++step) {
    CAPTURE(step, name);
    std::int64_t ordinary_peak = 0, early_peak = 0;
    double norm = 0;
    {
      const ilme::ops::MemoryPhase phase;
      ordinary.loss(step).backward();
      norm = global_norm(ordinary.sink->gradients()).item<double>();
      ordinary.optimizer->step(ordinary.sink->gradients(), 0.01, divisor);
      ordinary.sink->clear();
      ordinary_peak = phase.peak_bytes() - phase.start_bytes();
    }
    {
      const ilme::ops::MemoryPhase phase;
      in_backward.begin(0.01, divisor);
      early.loss(step).backward();
      CHECK(in_backward.end() == Catch::Approx(norm));
      early_peak = phase.peak_bytes() - phase.start_bytes();
    }
    for (std::int64_t i = 0; i < kLayers; ++i) CHECK(at::equal(ordinary.weights[i], early.weights[i]));
    for (const at::Tensor& gradient : early.sink->gradients()) CHECK_FALSE(gradient.defined());
    if (step > 0) {  // the first makes the optimizer's state
      CHECK(ordinary_peak > kLayers * kBytes);
      CHECK(early_peak < 5 * kBytes);
    }
  }
}

TEST_CASE("an optimizer in backward leaves a parameter alone whose gradient is not finite, and tells") {
  Chain chain;
  const at::Tensor before = chain.weights[2].clone();
  {
    OptimizerInBackward in_backward(*chain.sink, *chain.optimizer);
    in_backward.begin(0.01);
    (chain.weights[2] * std::numeric_limits<double>::infinity()).sum().backward();
    chain.weights[3].sum().backward();
    CHECK_FALSE(std::isfinite(in_backward.end()));
  }
  CHECK(at::equal(chain.weights[2], before));
  CHECK(chain.optimizer->updated_parameters().size() == 1);
  chain.loss(1).backward();  // the sink is as before
  CHECK(chain.sink->gradients()[2].defined());
}
