#include "support/catch_torch.hpp"

#include <utility>

#include "support/gradients.hpp"

#include <ilme/ops/token_losses.hpp>
#include <ilme/optim/gradient_sink.hpp>

using ilme::ops::token_log_probabilities;
using ilme::ops::token_log_probabilities_reference;
using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

TEST_CASE("token_log_probabilities equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 1e-5},
                                           std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3});
  const bool gaps = GENERATE(true, false);
  const ilme::ops::CrossEntropyOptions options =
      GENERATE(ilme::ops::CrossEntropyOptions{.chunk_bytes = 1},
               ilme::ops::CrossEntropyOptions{
                   .chunk_bytes = 1, .vocabulary_size = 29, .label_smoothing = 0.5, .z_loss = 1.0, .soft_cap = 2.0});
  at::Tensor labels = at::arange(34, at::kLong).view({2, 17}) * 3 % 29;
  if (gaps) labels.slice(1, 1, 17, 4).fill_(-100);
  const at::Tensor hidden = random({2, 17, 12}).to(dtype), weight = random({31, 12}, at::kDouble, 2).to(dtype);
  const at::Tensor upstream = random({34}, at::kDouble, 3);
  const auto run = [&](auto op, at::ScalarType type) {
    const at::Tensor x = leaf(hidden, type), w = leaf(weight, type);
    const at::Tensor y = op(x, w, labels, options);
    (y * upstream).sum().backward();
    return std::tuple{y.detach(), x.grad(), w.grad()};
  };
  const auto [y, dx, dw] = run(token_log_probabilities, dtype);
  const auto [expected, expected_dx, expected_dw] = run(token_log_probabilities_reference, at::kDouble);
  CHECK(y.scalar_type() == (dtype == at::kDouble ? at::kDouble : at::kFloat));
  CHECK(relative_error(y, expected) <= tolerance);
  CHECK(relative_error(dx, expected_dx) <= tolerance);
  CHECK(relative_error(dw, expected_dw) <= tolerance);
  CHECK(at::equal(ilme::ops::token_losses(hidden, weight, labels, options.vocabulary_size),
                  -token_log_probabilities(hidden, weight, labels, {.vocabulary_size = options.vocabulary_size})));
}

TEST_CASE("token_log_probabilities takes no counted label, a frozen head and frozen hidden states") {
  const at::Tensor hidden = random({3, 4}, at::kFloat), weight = random({5, 4}, at::kFloat, 2);
  const at::Tensor none = at::full({3}, -100, at::kLong), some = at::tensor({1, -100, 4}, at::kLong);
  const at::Tensor x = leaf(hidden, at::kFloat), w = leaf(weight, at::kFloat);
  const at::Tensor zero = token_log_probabilities(x, w, none);
  zero.sum().backward();
  CHECK(zero.eq(0).all().item<bool>());
  CHECK(x.grad().eq(0).all().item<bool>());
  CHECK(w.grad().eq(0).all().item<bool>());
  const at::Tensor only_x = leaf(hidden, at::kFloat), only_w = leaf(weight, at::kFloat);
  token_log_probabilities(only_x, weight, some).sum().backward();
  token_log_probabilities(hidden, only_w, some).sum().backward();
  token_log_probabilities(x, w, some).sum().backward();
  CHECK(at::equal(only_x.grad(), x.grad()));
  CHECK(at::equal(only_w.grad(), w.grad()));
}

TEST_CASE("token_log_probabilities adds the head's gradient where its receiver keeps the sum") {
  const at::Tensor hidden = random({5, 4}, at::kBFloat16), labels = at::tensor({1, -100, 4, 0, 2}, at::kLong);
  const at::Tensor plain = leaf(random({7, 4}, at::kDouble, 2), at::kBFloat16), w = plain.detach().clone();
  w.set_requires_grad(true);
  const ilme::ops::CrossEntropyOptions options{.chunk_bytes = 1, .vocabulary_size = 5};
  token_log_probabilities(hidden, plain, labels, options).sum().backward();
  ilme::optim::GradientSink sink({w});
  for (const double times : {1.0, 2.0}) {
    token_log_probabilities(hidden, w, labels, options).sum().backward();
    CHECK(sink.gradients()[0].scalar_type() == at::kFloat);
    CHECK(relative_error(sink.gradients()[0], plain.grad() * times) <= 1e-2);
    CHECK(sink.gradients()[0].narrow(0, 5, 2).eq(0).all().item<bool>());
  }
  CHECK_FALSE(w.grad().defined());
}
