#include "support/catch_torch.hpp"

#include <cmath>
#include <tuple>
#include <utility>

#include "support/gradients.hpp"

#include <ilme/ops/linear_distillation.hpp>

using ilme::ops::DistillationOptions;
using ilme::ops::linear_distillation;
using ilme::ops::linear_distillation_reference;
using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

const auto some_options = {
    DistillationOptions{.logits = {.chunk_bytes = 1}},
    DistillationOptions{.temperature = 2.5, .cross_entropy_weight = 0.0, .logits = {.chunk_bytes = 1}},
    DistillationOptions{.temperature = 2.0, .cross_entropy_weight = 0.3, .reverse = true, .logits = {.chunk_bytes = 1}},
    DistillationOptions{
        .temperature = 0.7, .reverse = true, .logits = {.chunk_bytes = 1, .vocabulary_size = 33, .soft_cap = 3.0}},
    DistillationOptions{.temperature = 1.5, .logits = {.chunk_bytes = 1, .soft_cap = 2.0}},
};

struct Inputs {
  at::Tensor hidden = random({2, 17, 9}), weight = random({37, 9}, at::kDouble, 2),
             teacher = random({2, 17, 5}, at::kDouble, 3), teacher_weight = random({40, 5}, at::kDouble, 4),
             labels = at::arange(34, at::kLong).view({2, 17}) % 33;
};

}  // namespace

TEST_CASE("linear_distillation equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 1e-5},
                                           std::pair{at::kBFloat16, 2e-2}, std::pair{at::kHalf, 3e-3});
  const DistillationOptions options = GENERATE(values(some_options));
  const bool gaps = GENERATE(true, false);
  CAPTURE(dtype, gaps, options.temperature, options.reverse, options.logits.soft_cap);
  Inputs in;
  if (gaps) in.labels.slice(1, 1, 17, 3).fill_(-100);
  const auto run = [&](auto op, at::ScalarType type) {
    const auto rounded = [&](const at::Tensor& values) { return values.to(dtype).to(type); };
    const at::Tensor x = leaf(rounded(in.hidden), type), w = leaf(rounded(in.weight), type);
    const auto loss = op(x, w, rounded(in.teacher), rounded(in.teacher_weight), in.labels, options);
    (loss.sum * 0.7).backward();
    return std::tuple{loss, x.grad(), w.grad()};
  };
  const auto [loss, dx, dw] = run(linear_distillation, dtype);
  const auto [expected, expected_dx, expected_dw] = run(linear_distillation_reference, at::kDouble);
  CHECK(loss.tokens == expected.tokens);
  CHECK(relative_error(loss.sum, expected.sum) <= tolerance);
  CHECK(relative_error(loss.cross_entropy, expected.cross_entropy) <= tolerance);
  CHECK(relative_error(loss.divergence, expected.divergence) <= tolerance);
  CHECK(relative_error(dx, expected_dx) <= tolerance);
  CHECK(relative_error(dw, expected_dw) <= tolerance);
}

TEST_CASE("linear_distillation agrees with finite differences") {
  const DistillationOptions options = GENERATE(values(some_options));
  const at::Tensor hidden = random({3, 4}), teacher = random({3, 2}, at::kDouble, 3),
                   teacher_weight = random({33, 2}, at::kDouble, 4), weight = random({33, 4}, at::kDouble, 2),
                   labels = at::tensor({5, -100, 2}, at::kLong);
  const auto value = [&](const at::Tensor& x) {
    return linear_distillation(x, weight, teacher, teacher_weight, labels, options).sum;
  };
  const at::Tensor x = leaf(hidden, at::kDouble);
  value(x).backward();
  const double h = 1e-6;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor up = hidden.clone(), down = hidden.clone();
    up.view(-1)[i] += h;
    down.view(-1)[i] -= h;
    REQUIRE(x.grad().flatten()[i].item<double>() ==
            Catch::Approx((value(up) - value(down)).item<double>() / (2 * h)).margin(1e-7));
  }
}

TEST_CASE("a student that is its teacher has no divergence; no counted label gives zeros; wrong input is refused") {
  const Inputs in;
  const at::Tensor &x = in.hidden, &w = in.weight;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const bool reverse = GENERATE(true, false);
    const at::Tensor student = leaf(x, dtype);
    const auto same = linear_distillation(student, w.to(dtype), x.to(dtype), w.to(dtype), in.labels,
                                          {.cross_entropy_weight = 0.0, .reverse = reverse});
    same.sum.backward();
    CHECK(std::abs(same.divergence.item<double>()) <= 1e-4);
    CHECK(student.grad().abs().max().item<double>() <= 1e-5);
  }
  const at::Tensor none = at::full({2, 17}, -100, at::kLong), student = leaf(x, at::kFloat), head = leaf(w, at::kFloat);
  const auto zero = linear_distillation(student, head, in.teacher, in.teacher_weight, none);
  zero.mean().backward();
  CHECK(zero.tokens == 0);
  CHECK(zero.sum.item<double>() == 0.0);
  CHECK(student.grad().eq(0).all().item<bool>());
  CHECK(head.grad().eq(0).all().item<bool>());
  const at::Tensor &t = in.teacher, &tw = in.teacher_weight, &y = in.labels;
  CHECK_THROWS_AS(linear_distillation(x, w, t, tw.narrow(0, 0, 30), y), c10::ValueError);
  CHECK_THROWS_AS(linear_distillation(x, w, t.narrow(1, 0, 16), tw, y), c10::ValueError);
  CHECK_THROWS_AS(linear_distillation(x, w, t, tw, y, {.temperature = 0.0}), c10::ValueError);
  CHECK_THROWS_AS(linear_distillation(x, w, t, tw, y, {.cross_entropy_weight = 1.1}), c10::ValueError);
  CHECK_THROWS_AS(linear_distillation(x, w, t, tw, y, {.logits = {.z_loss = 1.0}}), c10::ValueError);
}
