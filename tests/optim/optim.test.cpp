#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <cmath>

#include <ilme/core/error.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/concepts.hpp>
#include <ilme/optim/gradient_sink.hpp>
#include <ilme/optim/schedule.hpp>

using namespace ilme::optim;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;

static_assert(Optimizer<AdamW>);

namespace {

/// Gives back what AdamW::state() gave.
StateReader reader(const NamedParameters& saved) {
  return [saved](const ParameterSlice& slice, const std::string& kind, const at::Tensor& target) {
    for (const auto& [name, tensor] : saved) {
      if (name == slice.name + "." + kind) return target.copy_(tensor).defined();
    }
    return false;
  };
}

}  // namespace

TEST_CASE("AdamW equals torch's, with decay on matrices only") {
  const at::Tensor matrix = random({5, 3}), vector = random({4}, at::kDouble, 2);
  at::Tensor a = leaf(matrix, at::kFloat), b = leaf(vector, at::kFloat), c = leaf(matrix, at::kFloat),
             d = leaf(vector, at::kFloat);
  AdamW ours({{"a", a}, {"b", b}});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{c},
                      std::make_unique<torch::optim::AdamWOptions>(
                          torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).weight_decay(0.1)));
  groups.emplace_back(std::vector<at::Tensor>{d},
                      std::make_unique<torch::optim::AdamWOptions>(
                          torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).weight_decay(0.0)));
  torch::optim::AdamW theirs(groups);
  for (std::uint64_t step = 0; step < 5; ++step) {
    std::vector<at::Tensor> gradients{random({5, 3}, at::kFloat, 10 + step), random({4}, at::kFloat, 20 + step)};
    c.mutable_grad() = gradients[0].clone() / 3.0;
    d.mutable_grad() = gradients[1].clone() / 3.0;
    theirs.step();
    ours.step(gradients, 0.01, at::scalar_tensor(3.0, at::kFloat));
  }
  CHECK(max_difference(a, c) < 1e-6);
  CHECK(max_difference(b, d) < 1e-6);
}

TEST_CASE("a bf16 parameter follows its fp32 master") {
  at::Tensor low = leaf(at::ones({8}), at::kBFloat16), high = leaf(at::ones({8}), at::kFloat);
  AdamW with_master({{"w", low}}), plain({{"w", high}});
  for (int step = 0; step < 50; ++step) {
    std::vector<at::Tensor> g1{at::ones({8})}, g2{at::ones({8})};
    with_master.step(g1, 1e-4);  // each step is a fortieth of half a bf16 unit: without a master nothing would move
    plain.step(g2, 1e-4);
  }
  CHECK(high[0].item<double>() == Catch::Approx(0.995).margin(1e-4));
  CHECK(at::equal(low, high.to(at::kBFloat16)));
}

TEST_CASE("AdamW on slices updates them as in the whole, stochastic rounding and decay included") {
  const AdamWState state = GENERATE(AdamWState::masters, AdamWState::bf16);
  const at::Tensor start = random({7, 11});
  at::Tensor whole = leaf(start, at::kBFloat16), norm = leaf(random({5}), at::kBFloat16);
  const at::Tensor parts = whole.detach().clone().flatten(), norm_parts = norm.detach().clone();
  const AdamWOptions options{.state = state, .seed = 3};
  AdamW one({{"w", whole}, {"norm", norm}}, options);
  const std::int64_t cuts[] = {0, 13, 13, 30, 77}, norm_cuts[] = {0, 5, 5, 5, 5};
  std::vector<AdamW> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back(
        std::vector<ParameterSlice>{
            {"w", parts.narrow(0, cuts[r], cuts[r + 1] - cuts[r]), {7, 11}, cuts[r]},
            {"norm", norm_parts.narrow(0, norm_cuts[r], norm_cuts[r + 1] - norm_cuts[r]), {5}, norm_cuts[r]}},
        options);
  }
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<at::Tensor> gradients{random({7, 11}, at::kFloat, step), random({5}, at::kFloat, 50 + step)};
    for (int r = 0; r < 4; ++r) {
      std::vector<at::Tensor> pieces{gradients[0].flatten().narrow(0, cuts[r], cuts[r + 1] - cuts[r]),
                                     gradients[1].narrow(0, norm_cuts[r], norm_cuts[r + 1] - norm_cuts[r])};
      ranks[static_cast<std::size_t>(r)].step(pieces, 0.01, at::scalar_tensor(2.0, at::kFloat));
    }
    one.step(gradients, 0.01, at::scalar_tensor(2.0, at::kFloat));
  }
  CHECK(at::equal(whole.flatten(), parts));
  CHECK(at::equal(norm, norm_parts));
  CHECK(ranks[1].slices()[0].end() == 13);
  CHECK(one.slices()[0].is_whole());
}

TEST_CASE("AdamW's state survives a round trip exactly; a part that is missing is an error") {
  const auto gradient = [](std::uint64_t step) { return std::vector<at::Tensor>{random({3, 3}, at::kFloat, step)}; };
  at::Tensor a = leaf(random({3, 3}), at::kBFloat16), b = leaf(random({3, 3}), at::kBFloat16);
  AdamW first({{"w", a}}), second({{"w", b}});
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto g = gradient(step);
    first.step(g, 0.1);
  }
  NamedParameters saved;
  for (const auto& [name, tensor] : first.state()) saved.emplace_back(name, tensor.clone());
  second.load_state(reader(saved));
  for (std::uint64_t step = 3; step < 6; ++step) {
    auto g = gradient(step), h = gradient(step);
    first.step(g, 0.1);
    second.step(h, 0.1);
  }
  CHECK(at::equal(a, b));
  saved.pop_back();
  CHECK_THROWS_AS(second.load_state(reader(saved)), ilme::InputError);
}

TEST_CASE("bf16 state: half of the memory, small steps count, and a round trip goes on with the same bits") {
  const std::int64_t size = 2048;
  const auto gradient = [&](std::uint64_t step) {
    return std::vector<at::Tensor>{1 + random({size}, at::kFloat, step)};
  };
  const AdamWOptions options{.state = AdamWState::bf16, .seed = 9};
  at::Tensor a = leaf(at::ones({size}), at::kBFloat16), b = leaf(at::ones({size}), at::kBFloat16),
             precise = leaf(at::ones({size}), at::kFloat);
  AdamW first({{"w", a}}, options), second({{"w", b}}, options), curve({{"w", precise}}, options);
  NamedParameters saved;
  for (std::uint64_t step = 0; step < 60; ++step) {
    if (step == 30) {
      for (const auto& [name, tensor] : first.state()) saved.emplace_back(name, tensor.clone());
      {
        const c10::NoGradGuard no_gradient;
        b.copy_(a);
      }
      second.load_state(reader(saved));
    }
    auto g = gradient(step), h = gradient(step), k = gradient(step);
    first.step(g, 1e-4);  // a fortieth of the distance to the bf16 below
    curve.step(h, 1e-4);
    if (step >= 30) second.step(k, 1e-4);
  }
  CHECK(at::equal(a, b));
  CHECK(std::abs(a.mean(at::kDouble).item<double>() - precise.mean(at::kDouble).item<double>()) < 3e-4);
  CHECK(precise.mean().item<double>() < 0.9965);
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : first.state()) bytes += tensor.nbytes();
  CHECK(bytes == 6 * size + 4);
  CHECK(first.state_bytes() == 6 * size + 4);
  CHECK(curve.state_bytes() == 8 * size + 4);
  for (const auto& [name, tensor] : curve.state()) CHECK(tensor.scalar_type() == at::kFloat);

  at::Tensor other = leaf(at::ones({size}), at::kBFloat16);
  AdamW reseeded({{"w", other}}, {.state = AdamWState::bf16, .seed = 10}), with_masters({{"w", other}});
  auto g = gradient(0), h = gradient(0);
  reseeded.step(g, 1e-3);
  at::Tensor same = leaf(at::ones({size}), at::kBFloat16);
  AdamW({{"w", same}}, options).step(h, 1e-3);
  CHECK_FALSE(at::equal(same, other));
  CHECK_THROWS_AS(with_masters.load_state(reader(saved)), ilme::InputError);
  auto k = gradient(0);
  AdamW masters({{"w", other}});
  masters.step(k, 1e-3);
  first.load_state(reader(masters.state()));
  CHECK(at::equal(first.state()[1].second, masters.state()[1].second.to(at::kBFloat16)));
  CHECK(parse_adamw_state("bf16") == AdamWState::bf16);
  CHECK_THROWS_AS(parse_adamw_state("fp8"), ilme::InputError);
}

TEST_CASE("step_one is step for one parameter") {
  at::Tensor a = leaf(random({3, 5}), at::kBFloat16), b = leaf(random({3, 5}), at::kBFloat16);
  AdamW whole({{"w", a}}), one({{"w", b}});
  for (std::uint64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> g{random({3, 5}, at::kFloat, step)};
    one.step_one(0, g[0].clone(), 0.1);
    whole.step(g, 0.1);
  }
  CHECK(at::equal(a, b));
}

TEST_CASE("a parameter without a gradient is left alone") {
  at::Tensor a = leaf(at::ones({2, 2}), at::kFloat), b = leaf(at::ones({2, 2}), at::kFloat);
  AdamW optimizer({{"a", a}, {"b", b}});
  std::vector<at::Tensor> gradients{at::ones({2, 2}), at::Tensor()};
  optimizer.step(gradients, 0.1);
  CHECK(a[0][0].item<double>() < 1.0);
  CHECK(at::equal(b, at::ones({2, 2})));
}

TEST_CASE("the sink sums in float32 and empties .grad") {
  at::Tensor w = leaf(at::ones({4}), at::kBFloat16);
  GradientSink sink({w});
  for (int i = 0; i < 300; ++i) (w * 1.0).sum().backward();
  CHECK_FALSE(w.grad().defined());
  REQUIRE(sink.gradients()[0].defined());
  CHECK(sink.gradients()[0].scalar_type() == at::kFloat);
  CHECK(sink.gradients()[0][0].item<double>() == 300.0);  // bf16 would stop at 256
  ilme::ops::GradientReceiver* receiver = ilme::ops::gradient_receiver(w);
  REQUIRE(receiver != nullptr);
  receiver->take(at::full({4}, 0.5, at::kBFloat16));
  CHECK(sink.gradients()[0][0].item<double>() == 300.5);
  CHECK_FALSE(receiver->accumulator().empty);
  receiver->accumulator().sum.add_(1.0);
  CHECK(sink.gradients()[0][0].item<double>() == 301.5);
  sink.clear();
  CHECK_FALSE(sink.gradients()[0].defined());
  CHECK(receiver->accumulator().empty);
  CHECK(sink.gradients()[0].scalar_type() == at::kFloat);
  CHECK_THROWS_AS(receiver->take(at::ones({5})), c10::ValueError);
  CHECK(ilme::ops::gradient_receiver(at::ones({4})) == nullptr);
}

TEST_CASE("the sink can be redirected, and lets go of its parameters") {
  at::Tensor w = leaf(at::ones({4}), at::kFloat);
  {
    GradientSink sink({w});
    int calls = 0;
    sink.redirect([&](std::size_t index, at::Tensor gradient) {
      CHECK(index == 0);
      CHECK(gradient.defined());
      ++calls;
    });
    (w * 2.0).sum().backward();
    CHECK(calls == 1);
    CHECK_FALSE(sink.gradients()[0].defined());
  }
  w.mutable_grad() = at::Tensor();
  (w * 2.0).sum().backward();
  CHECK(w.grad()[0].item<double>() == 2.0);
}

TEST_CASE("a redirected gradient is complete: what operations hand over and what comes through autograd together") {
  const bool tied = GENERATE(true, false);
  CAPTURE(tied);
  const at::Tensor head = leaf(at::ones({3, 2}), at::kFloat), labels = at::tensor({0, 2}, at::kLong);
  const auto loss = [&] {
    const at::Tensor hidden = tied ? at::embedding(head, labels) : at::ones({2, 2});
    return ilme::ops::linear_cross_entropy(hidden, head, labels).sum;
  };
  loss().backward();
  const at::Tensor expected = std::exchange(head.mutable_grad(), {});
  GradientSink sink({head});
  std::vector<at::Tensor> arrived;
  sink.redirect([&](std::size_t, at::Tensor gradient) { arrived.push_back(gradient); });
  loss().backward();
  REQUIRE(arrived.size() == 1);
  CHECK(at::allclose(arrived[0], expected));
}

TEST_CASE("the first gradient in the sink is not an alias of one that autograd still uses") {
  at::Tensor a = leaf(at::ones({4}), at::kFloat), b = leaf(at::ones({4}), at::kFloat);
  GradientSink sink({a, b});
  for (int i = 0; i < 2; ++i) (a + b).sum().backward();
  CHECK(sink.gradients()[0][0].item<double>() == 2.0);
  CHECK(sink.gradients()[1][0].item<double>() == 2.0);
}

TEST_CASE("schedules: warm-up, decay and floor") {
  Schedule cosine{Decay::cosine, 1.0, 0.1, 10, 110};
  CHECK(cosine(1) == Catch::Approx(0.1));
  CHECK(cosine(10) == Catch::Approx(1.0));
  CHECK(cosine(60) == Catch::Approx(0.55));
  CHECK(cosine(110) == Catch::Approx(0.1));
  CHECK(cosine(200) == Catch::Approx(0.1));
  CHECK(Schedule{Decay::linear, 1.0, 0.0, 0, 10}(5) == Catch::Approx(0.5));
  CHECK(Schedule{Decay::constant, 1.0, 0.0, 0, 10}(50) == Catch::Approx(1.0));
  const Schedule wsd{Decay::wsd, 1.0, 0.0, 0, 100, 0.2};
  CHECK(wsd(80) == Catch::Approx(1.0));
  CHECK(wsd(90) == Catch::Approx(0.5));
  CHECK_THROWS_AS(parse_decay("cosin"), ilme::InputError);
}

TEST_CASE("global_norm covers all gradients and passes over absent ones") {
  CHECK(global_norm({at::full({4}, 1.0F), at::Tensor(), at::full({5}, 1.0F)}).item<double>() == Catch::Approx(3.0));
  CHECK(global_norm({}).item<double>() == 0.0);
}
