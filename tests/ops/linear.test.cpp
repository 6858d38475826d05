#include "support/catch_torch.hpp"

#include <optional>
#include <tuple>

#include "support/gradients.hpp"

#include <ilme/ops/linear.hpp>
#include <ilme/optim/gradient_sink.hpp>

using namespace ilme;
using test::leaf;
using test::random;
using test::relative_error;

namespace {

struct Gradients {
  at::Tensor y, x, weight, bias;
};

template <class Linear>
Gradients run(Linear&& linear, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
              const at::Tensor& dy, at::ScalarType type) {
  const at::Tensor a = leaf(x, type), w = leaf(weight, type), b = bias.defined() ? leaf(bias, type) : at::Tensor();
  const at::Tensor y = linear(a, w, b);
  y.backward(dy.to(type));
  return {y.detach(), a.grad(), w.grad(), b.defined() ? b.grad() : at::Tensor()};
}

const auto plain = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  return at::linear(x, w, b.defined() ? std::optional<at::Tensor>(b) : std::nullopt);
};

const auto fused = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return ops::linear(x, w, b); };

}  // namespace

TEST_CASE("linear and its gradients equal ATen's") {
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kDouble, 1e-12}, std::pair{at::kFloat, 1e-6}, std::pair{at::kBFloat16, 4e-3});
  const auto [batch, sequence, in, out] =
      GENERATE(std::tuple{1, 1, 3, 5}, std::tuple{2, 77, 33, 65}, std::tuple{3, 50, 130, 19});
  const bool with_bias = GENERATE(false, true);
  CAPTURE(type, batch, sequence, in, out, with_bias);
  const at::Tensor x = random({batch, sequence, in}), weight = random({out, in}, at::kDouble, 2);
  const at::Tensor bias = with_bias ? random({out}, at::kDouble, 3) : at::Tensor();
  const at::Tensor dy = random({batch, sequence, out}, at::kDouble, 4);
  const auto round = [&, type = type](const at::Tensor& t) { return t.defined() ? t.to(type).to(at::kDouble) : t; };
  const Gradients expected = run(plain, round(x), round(weight), round(bias), round(dy), at::kDouble);
  const Gradients got = run(fused, x, weight, bias, dy, type);
  CHECK(relative_error(got.y, expected.y) <= tolerance);
  CHECK(relative_error(got.x, expected.x) <= tolerance);
  CHECK(relative_error(got.weight, expected.weight) <= tolerance);
  if (with_bias) CHECK(relative_error(got.bias, expected.bias) <= tolerance);
}

TEST_CASE("gradients of weight and bias arrive at the sink in float32 and sum up") {
  const at::Tensor x = random({200, 40}, at::kBFloat16), dy = random({200, 24}, at::kBFloat16, 2);
  const at::Tensor weight = leaf(random({24, 40}, at::kDouble, 3), at::kBFloat16);
  const at::Tensor bias = leaf(random({24}, at::kDouble, 4), at::kBFloat16);
  optim::GradientSink sink({weight, bias});
  for (int i = 0; i < 2; ++i) ops::linear(x, weight, bias).backward(dy);
  CHECK_FALSE(weight.grad().defined());
  REQUIRE(sink.gradients()[0].scalar_type() == at::kFloat);
  const at::Tensor expected = 2 * at::mm(dy.to(at::kDouble).t(), x.to(at::kDouble));
  CHECK(relative_error(sink.gradients()[0], expected) <= 4e-3);
  // With the kernel nothing is rounded to bf16.
  const at::Tensor a = random({200, 150}, at::kBFloat16, 5);
  if (ops::detail::has_product_kernel(a.t(), x)) {
    at::Tensor sum = at::empty({150, 40});
    ops::detail::add_product(sum, a, x, /*overwrite=*/true);
    CHECK(relative_error(sum, at::mm(a.to(at::kDouble).t(), x.to(at::kDouble))) <= 1e-6);
  }
  CHECK(relative_error(sink.gradients()[1], 2 * dy.to(at::kDouble).sum(0)) <= 1e-6);
}

TEST_CASE("a frozen weight keeps no input and gets no gradient") {
  const at::Tensor x = leaf(random({4, 6}), at::kFloat), weight = random({5, 6}, at::kFloat, 2);
  ops::linear(x, weight).sum().backward();
  CHECK(at::allclose(x.grad(), weight.sum(0).expand({4, 6})));
  CHECK_FALSE(weight.grad().defined());
}

TEST_CASE("where the value is not needed, the gradients are the same") {
  const at::Tensor x = random({9, 6}), weight = random({5, 6}, at::kDouble, 2), dy = random({9, 5}, at::kDouble, 3);
  const auto valueless = [](const at::Tensor& a, const at::Tensor& w, const at::Tensor& b) {
    const ops::ValueNotNeeded hint;
    const at::Tensor y = ops::linear(a, w, b);
    CHECK(at::equal(y, at::zeros_like(y)));
    return y;
  };
  const Gradients expected = run(plain, x, weight, {}, dy, at::kDouble),
                  got = run(valueless, x, weight, {}, dy, at::kDouble);
  CHECK(relative_error(got.x, expected.x) <= 1e-12);
  CHECK(relative_error(got.weight, expected.weight) <= 1e-12);
  CHECK_FALSE(ops::ValueNotNeeded::active());
}

TEST_CASE("shapes that do not fit are refused, no rows are fine") {
  const at::Tensor weight = leaf(random({5, 6}), at::kFloat);
  CHECK_THROWS_AS(ops::linear(at::ones({2, 7}), weight), c10::ValueError);
  CHECK_THROWS_AS(ops::linear(at::ones({2, 6}), weight, at::ones({4})), c10::ValueError);
  const at::Tensor y = ops::linear(at::empty({0, 6}), weight);
  CHECK(y.sizes() == at::IntArrayRef({0, 5}));
  y.sum().backward();
  CHECK(at::equal(weight.grad(), at::zeros({5, 6})));
}
