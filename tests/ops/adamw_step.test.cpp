#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ilme/ops/adamw_step.hpp>

using namespace ilme::ops;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;

namespace {

constexpr AdamWRule kRule{0.9, 0.95, 1e-8};

/// A parameter as optim::AdamW keeps it; `stochastic`: bf16 without a master.
AdamWTensors made(const at::Tensor& start, at::ScalarType type, bool stochastic = false) {
  AdamWTensors t;
  t.parameter = start.to(type).clone();
  const at::ScalarType precise = type == at::kDouble ? at::kDouble : at::kFloat;
  if (type != precise && !stochastic) t.master = t.parameter.to(precise);
  t.exp_avg = at::zeros_like(t.parameter, stochastic ? at::kBFloat16 : precise);
  t.exp_avg_sq = at::zeros_like(t.parameter, precise);
  return t;
}

std::vector<AdamWTensors> copied(const std::vector<AdamWTensors>& all) {
  std::vector<AdamWTensors> copies = all;
  for (AdamWTensors& t : copies) {
    for (at::Tensor* tensor : {&t.parameter, &t.gradient, &t.master, &t.exp_avg, &t.exp_avg_sq}) {
      if (tensor->defined()) *tensor = tensor->clone();
    }
  }
  return copies;
}

}  // namespace

TEST_CASE("adamw_step and its twin equal torch.optim.AdamW in float64") {
  const at::Tensor start = random({5, 7}), divisor = at::scalar_tensor(4.0, at::kFloat);
  AdamWTensors fused = made(start, at::kDouble), twin = made(start, at::kDouble);
  at::Tensor theirs = leaf(start, at::kDouble);
  torch::optim::AdamW optimizer(
      {theirs},
      torch::optim::AdamWOptions(0.01).betas({kRule.beta1, kRule.beta2}).eps(kRule.epsilon).weight_decay(0.1));
  for (int step = 1; step <= 50; ++step) {
    const at::Tensor gradient = random({5, 7}, at::kDouble, step);
    for (AdamWTensors* t : {&fused, &twin}) {
      t->gradient = gradient.clone();
      t->step = step;
      t->learning_rate = 0.01;
      t->weight_decay = 0.1;
    }
    adamw_step({fused}, kRule, divisor);
    adamw_step_reference({twin}, kRule, divisor);
    theirs.mutable_grad() = gradient / 4.0;
    optimizer.step();
  }
  CHECK(max_difference(fused.parameter, theirs) < 1e-10);
  CHECK(max_difference(twin.parameter, theirs) < 1e-10);
}

TEST_CASE("adamw_step equals its twin for a list of tensors of odd sizes, over many steps") {
  const auto [type, gradient_type] = GENERATE(
      std::pair{at::kFloat, at::kFloat}, std::pair{at::kFloat, at::kBFloat16}, std::pair{at::kBFloat16, at::kFloat},
      std::pair{at::kBFloat16, at::kBFloat16}, std::pair{at::kHalf, at::kFloat}, std::pair{at::kHalf, at::kHalf});
  const std::optional<at::Tensor> divisor =
      GENERATE(std::optional<at::Tensor>(), std::optional<at::Tensor>(at::scalar_tensor(2.5, at::kFloat)));
  CAPTURE(type, gradient_type, divisor.has_value());
  std::vector<AdamWTensors> fused;
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{1}, {0}, {16}, {3, 7}, {}, {129, 257}, {0, 4}, {33}}) {
    fused.push_back(made(random(shape, at::kDouble, 3), type));
  }
  std::vector<AdamWTensors> twin = copied(fused);
  for (int step = 1; step <= 12; ++step) {
    for (std::size_t i = 0; i < fused.size(); ++i) {
      for (AdamWTensors* t : {&fused[i], &twin[i]}) {
        t->gradient = random(t->parameter.sizes(), gradient_type, 100 * step + i);
        t->step = step + static_cast<std::int64_t>(i % 3);
        t->learning_rate = 0.01 * static_cast<double>(1 + i);
        t->weight_decay = i % 2 == 0 ? 0.1 : 0.0;
      }
    }
    adamw_step(fused, kRule, divisor);
    adamw_step_reference(twin, kRule, divisor);
  }
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const auto& value = [&](const AdamWTensors& t) { return t.master.defined() ? t.master : t.parameter; };
    CHECK(max_difference(value(fused[i]), value(twin[i])) < 3e-6);
    CHECK(max_difference(fused[i].exp_avg, twin[i].exp_avg) < 1e-6);
    CHECK(max_difference(fused[i].exp_avg_sq, twin[i].exp_avg_sq) < 1e-6);
    CHECK(at::equal(fused[i].parameter, value(fused[i]).to(type)));
  }
}

TEST_CASE("rounding words are the documented function of key and element") {
  const at::Tensor words = ilme::ops::detail::rounding_words(0x0123456789ABCDEF, 0, (1 << 20) + 1, at::kCPU);
  const std::int64_t places[] = {0, 1, 2, 100, 1 << 20};
  const std::int64_t values[] = {965615817, 4100031084, 3247146520, 1591123358, 2531516010};
  for (int i = 0; i < 5; ++i) CHECK(words[places[i]].item<std::int64_t>() == values[i]);
  const at::Tensor wrapped = ilme::ops::detail::rounding_words(0xFFFFFFFFFFFFFFFF, 0, 2, at::kCPU);
  CHECK(wrapped[0].item<std::int64_t>() == 3792759280);
  CHECK(wrapped[1].item<std::int64_t>() == 2180083513);
  // Every bit is set half of the time, and neighbours, keys and halves have nothing to do with each other.
  const auto bit = [](const at::Tensor& from, int i) {
    return from.bitwise_right_shift(i).bitwise_and(1).to(at::kFloat) * 2 - 1;
  };
  const at::Tensor next = ilme::ops::detail::rounding_words(0x0123456789ABCDF0, 0, (1 << 20) + 1, at::kCPU);
  const double bound = 5.0 / 1024;  // of a mean of 2^20 signs, five standard deviations
  for (int i = 0; i < 32; ++i) {
    CAPTURE(i);
    const at::Tensor here = bit(words, i);
    CHECK(std::abs(here.mean().item<double>()) < bound);
    CHECK(std::abs((here * bit(next, i)).mean().item<double>()) < bound);
    CHECK(std::abs((here * here.roll(1)).mean().item<double>()) < bound);
    CHECK(std::abs((here * bit(words, (i + 16) % 32)).mean().item<double>()) < bound);
  }
}

TEST_CASE("bf16 without a master draws the bits of its twin") {
  const at::ScalarType gradient_type = GENERATE(at::kFloat, at::kBFloat16);
  AdamWTensors t = made(random({131, 257}), at::kBFloat16, /*stochastic=*/true);
  for (int step = 1; step <= 4; ++step) {
    CAPTURE(step, gradient_type);
    t.gradient = random(t.parameter.sizes(), gradient_type, step);
    t.step = step;
    t.learning_rate = 0.01;
    t.weight_decay = 0.1;
    t.key = 0xABCDEF0123456789ULL * static_cast<std::uint64_t>(step);
    const std::vector<AdamWTensors> twin = copied({t});
    adamw_step({t}, kRule, at::scalar_tensor(2.0, at::kFloat));
    adamw_step_reference(twin, kRule, at::scalar_tensor(2.0, at::kFloat));
    // A float32 that differs in its last bit is rounded differently once in 65,536 times.
    CHECK((t.parameter != twin[0].parameter).sum().item<std::int64_t>() <= 8);
    CHECK((t.exp_avg != twin[0].exp_avg).sum().item<std::int64_t>() <= 8);
    CHECK(max_difference(t.exp_avg_sq, twin[0].exp_avg_sq) < 1e-6);
  }
}

TEST_CASE("stochastic rounding is right in the mean and takes the two nearest values only") {
  const std::int64_t size = 1 << 20;
  AdamWTensors t = made(at::full({size}, 1.0), at::kBFloat16, /*stochastic=*/true);
  t.gradient = at::full({size}, 1.0);
  t.learning_rate = 0.001;  // the first step takes the rate from 1: a quarter of the unit below 1, which is 2^-8
  t.key = 77;
  adamw_step({t}, kRule);
  const at::Tensor value = t.parameter.to(at::kDouble);
  CHECK((value == 1.0).logical_or(value == 1.0 - 1.0 / 256).all().item<bool>());
  CHECK(std::abs(value.mean().item<double>() - 0.999) < 5 * 0.44 / 256 / 1024);  // five standard deviations
  const at::Tensor moment = t.exp_avg.to(at::kDouble);
  CHECK(std::abs(moment.mean().item<double>() - 0.1) < 5 * 0.5 / 2048 / 1024);
  CHECK((moment - 0.1).abs().max().item<double>() < 1.0 / 2048);
}

TEST_CASE("updates below half a bf16 unit count with stochastic rounding, where plain rounding stalls") {
  const std::int64_t size = 4096;
  AdamWTensors stochastic = made(at::ones({size}), at::kBFloat16, true), precise = made(at::ones({size}), at::kFloat);
  at::Tensor plain = at::ones({size}, at::kBFloat16);
  for (int step = 1; step <= 100; ++step) {
    for (AdamWTensors* t : {&stochastic, &precise}) {
      t->gradient = at::ones({size});
      t->step = step;
      t->learning_rate = 1e-4;
      t->key = static_cast<std::uint64_t>(step) << 32;
      adamw_step({*t}, kRule);
    }
    plain.sub_(1e-4);
  }
  CHECK(precise.parameter[0].item<double>() == Catch::Approx(0.99).margin(1e-4));
  CHECK(stochastic.parameter.mean(at::kDouble).item<double>() == Catch::Approx(0.99).margin(2e-4));
  CHECK(plain[0].item<double>() == 1.0);
}

TEST_CASE("adamw_step keeps NaN and infinity visible and refuses what it cannot update") {
  const bool stochastic = GENERATE(false, true);
  AdamWTensors t = made(at::ones({40}), at::kBFloat16, stochastic);
  t.gradient = at::ones({40});
  t.gradient[3] = std::numeric_limits<float>::quiet_NaN();
  t.learning_rate = 0.1;
  adamw_step({t}, kRule);
  CHECK(t.parameter[3].isnan().item<bool>());
  CHECK(t.parameter.isfinite().sum().item<std::int64_t>() == 39);
  t.gradient = at::ones({41});
  CHECK_THROWS_AS(adamw_step({t}, kRule), c10::ValueError);
  AdamWTensors half = made(at::ones({4}), at::kHalf);
  half.gradient = at::ones({4});
  half.master = at::Tensor();
  CHECK_THROWS_AS(adamw_step({half}, kRule), c10::ValueError);
}

TEST_CASE("a gradient or a parameter in another memory order gives the same step") {
  const at::Tensor start = random({6, 9}), gradient = random({6, 9}, at::kFloat, 2);
  AdamWTensors plain = made(start, at::kBFloat16), turned = made(start.t().contiguous().t(), at::kBFloat16);
  REQUIRE_FALSE(turned.parameter.is_contiguous());
  plain.gradient = gradient.t().contiguous().t();
  turned.gradient = gradient;
  for (AdamWTensors* t : {&plain, &turned}) {
    t->learning_rate = 0.1;
    adamw_step({*t}, kRule);
  }
  CHECK(max_difference(plain.master, turned.master) < 1e-6);
}
