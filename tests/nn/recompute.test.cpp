#include "support/catch_torch.hpp"

#include <vector>

#include "support/gradients.hpp"

#include <ilme/core/error.hpp>
#include <ilme/nn/recompute.hpp>
#include <ilme/ops/linear.hpp>
#include <ilme/optim/gradient_sink.hpp>

using namespace ilme;
using test::leaf;
using test::random;
using test::relative_error;

namespace {

/// Two outputs of two inputs and a weight, with dropout inside.
std::vector<at::Tensor> two_outputs(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight) {
  const at::Tensor mixed = at::dropout(a * b.tanh(), 0.3, /*train=*/true);
  return {at::linear(mixed, weight), mixed.exp()};
}

}  // namespace

TEST_CASE("a segment that runs again gives the same gradients, dropout included") {
  const at::Tensor a = random({5, 4}), b = random({5, 4}, at::kDouble, 2), weight = random({3, 4}, at::kDouble, 3);
  const auto run = [&](bool again) {
    const at::Tensor x = leaf(a, at::kDouble), y = leaf(b, at::kDouble), w = leaf(weight, at::kDouble);
    at::manual_seed(7);
    const std::vector<at::Tensor> out =
        again ? nn::recompute([w](const std::vector<at::Tensor>& in, bool) { return two_outputs(in[0], in[1], w); },
                              {x, y})
              : two_outputs(x, y, w);
    const at::Tensor next = at::rand({2});  // the state moves on as without it
    const at::Tensor loss = out[0].pow(2).sum() + out[1].sum();
    const at::Tensor before_backward = at::rand({2});
    loss.backward();
    return std::vector<at::Tensor>{loss.detach(), x.grad(), y.grad(), w.grad(), next, before_backward, at::rand({2})};
  };
  const auto expected = run(false), got = run(true);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(at::equal(expected[i], got[i]));
  }
}

TEST_CASE("parameters get gradients where no input needs one, and outputs that nobody uses are no harm") {
  const at::Tensor w = leaf(random({3, 4}), at::kDouble), x = random({5, 4}, at::kDouble, 2);
  const auto out = nn::recompute(
      [w](const std::vector<at::Tensor>& in, bool) {
        return std::vector<at::Tensor>{at::linear(in[0], w), in[0] * 2.0, w.sum()};
      },
      {x});
  out[0].sum().backward();
  CHECK(at::allclose(w.grad(), x.sum(0).expand({3, 4})));
}

TEST_CASE("the last product of a segment is computed once, and its weight's gradient arrives at the sink") {
  const at::Tensor w = leaf(random({3, 4}), at::kFloat), x = leaf(random({5, 4}, at::kDouble, 2), at::kFloat);
  optim::GradientSink sink({w});
  int values = 0;
  const auto out = nn::recompute(
      [&, w](const std::vector<at::Tensor>& in, bool again) {
        const ops::ValueNotNeeded hint(again);
        const at::Tensor y = ops::linear(in[0].sin(), w);
        values += y.abs().sum().item<double>() > 0 ? 1 : 0;
        return std::vector<at::Tensor>{y};
      },
      {x});
  out[0].sum().backward();
  CHECK(values == 1);
  CHECK(relative_error(sink.gradients()[0], x.detach().sin().sum(0).expand({3, 4})) <= 1e-6);
  CHECK(relative_error(x.grad(), x.detach().cos() * w.detach().sum(0)) <= 1e-6);
}

TEST_CASE("without gradients a segment just runs") {
  const c10::NoGradGuard no_gradient;
  int runs = 0;
  const auto out = nn::recompute(
      [&](const std::vector<at::Tensor>& in, bool) {
        ++runs;
        return in;
      },
      {at::ones({2})});
  CHECK(runs == 1);
  CHECK(at::equal(out[0], at::ones({2})));
  CHECK_THROWS_AS(nn::recompute([](const std::vector<at::Tensor>& in, bool) { return in; }, {}), c10::ValueError);
  CHECK_THROWS_AS(nn::parse_activation_checkpointing("all"), InputError);
}

TEST_CASE("autocast is what it was in the second run") {
  const at::Tensor w = leaf(random({3, 4}), at::kFloat), x = random({5, 4}, at::kFloat, 2);
  std::vector<at::ScalarType> types;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto out = nn::recompute(
      [&, w](const std::vector<at::Tensor>& in, bool) {
        types.push_back(at::autocast::is_autocast_enabled(at::kCPU) ? at::autocast::get_autocast_dtype(at::kCPU)
                                                                    : at::kFloat);
        return std::vector<at::Tensor>{at::linear(in[0], w)};
      },
      {x});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  out[0].sum().backward();
  REQUIRE(types.size() == 2);
  CHECK(types[0] == at::kBFloat16);
  CHECK(types[1] == at::kBFloat16);
  CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}
