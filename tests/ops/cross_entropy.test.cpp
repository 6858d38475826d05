#include "support/catch_torch.hpp"

#include <optional>
#include <utility>

#include "support/gradients.hpp"

#include <ilme/ops/cross_entropy.hpp>

using ilme::ops::cross_entropy;
using ilme::ops::cross_entropy_reference;
using ilme::ops::CrossEntropyOptions;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

at::Tensor labels_with_gaps(std::int64_t rows, std::int64_t vocabulary, std::int64_t ignored) {
  at::Tensor labels = at::arange(rows, at::kLong) * 7 % vocabulary;
  for (std::int64_t i = 1; i < rows; i += 3) labels[i] = ignored;
  return labels;
}

const auto some_options = {
    CrossEntropyOptions{},
    CrossEntropyOptions{.vocabulary_size = 30, .label_smoothing = 0.1},
    CrossEntropyOptions{.ignore_index = 5, .z_loss = 1e-2},
    CrossEntropyOptions{.vocabulary_size = 33, .label_smoothing = 0.2, .z_loss = 1e-3, .soft_cap = 3.0},
};

}  // namespace

TEST_CASE("cross_entropy equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 2e-6},
                                           std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 1e-3});
  const CrossEntropyOptions options = GENERATE(values(some_options));
  CAPTURE(dtype, options.label_smoothing, options.z_loss, options.soft_cap);
  const at::Tensor labels = labels_with_gaps(14, 30, options.ignore_index).view({2, 7});
  const at::Tensor values = random({2, 7, 37}).mul_(3).to(dtype), x = leaf(values, dtype),
                   exact = leaf(values, at::kDouble);
  const auto got = cross_entropy(x, labels, options), expected = cross_entropy_reference(exact, labels, options);
  (got.sum * 0.3).backward();
  (expected.sum * 0.3).backward();
  CHECK(got.tokens == expected.tokens);
  CHECK(got.sum.scalar_type() == (dtype == at::kDouble ? at::kDouble : at::kFloat));
  CHECK(got.sum.item<double>() == Catch::Approx(expected.sum.item<double>()).epsilon(std::min(tolerance, 2e-6)));
  CHECK(relative_error(x.grad(), exact.grad()) <= tolerance);
}

TEST_CASE("cross_entropy agrees with finite differences") {
  const CrossEntropyOptions options{.vocabulary_size = 6, .label_smoothing = 0.2, .z_loss = 0.05, .soft_cap = 2.0};
  const at::Tensor x = leaf(random({3, 8}), at::kDouble), labels = at::tensor({5, -100, 2}, at::kLong);
  cross_entropy(x, labels, options).sum.backward();
  const double h = 1e-6;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor up = x.detach().clone(), down = x.detach().clone();
    up.view(-1)[i] += h;
    down.view(-1)[i] -= h;
    const double slope = (cross_entropy(up, labels, options).sum.item<double>() -
                          cross_entropy(down, labels, options).sum.item<double>()) /
                         (2 * h);
    REQUIRE(x.grad().flatten()[i].item<double>() == Catch::Approx(slope).margin(1e-8));
  }
}

TEST_CASE("the twin is torch's cross-entropy, and returns log-probabilities on request") {
  const at::Tensor x = random({9, 12}), labels = labels_with_gaps(9, 12, -100);
  CHECK(cross_entropy_reference(x, labels).sum.item<double>() ==
        Catch::Approx(at::cross_entropy_loss(x, labels, {}, at::Reduction::Sum).item<double>()));
  CHECK(cross_entropy(x, labels).mean().item<double>() ==
        Catch::Approx(at::cross_entropy_loss(x, labels, {}, at::Reduction::Mean).item<double>()));
  const at::Tensor expected = -at::cross_entropy_loss(x, labels, {}, at::Reduction::None);
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    const CrossEntropyOptions options{.label_smoothing = 0.4, .z_loss = 1.0, .token_log_probabilities = true};
    CHECK(max_difference(cross_entropy(x.to(dtype), labels, options).token_log_probabilities, expected) <= 1e-6);
    CHECK(max_difference(cross_entropy_reference(x.to(dtype), labels, options).token_log_probabilities, expected) <=
          1e-6);
  }
  CHECK_FALSE(cross_entropy(x, labels).token_log_probabilities.defined());
}

TEST_CASE("the gradient of cross_entropy goes over the logits when nothing else holds them") {
  const at::Tensor weight = leaf(random({20, 8}), at::kFloat), hidden = random({6, 8}, at::kFloat, 2);
  const at::Tensor labels = labels_with_gaps(6, 20, -100);
  const void* memory = nullptr;
  const void* gradient_memory = nullptr;
  const auto forward = [&](bool hold, std::optional<at::Tensor>& held) {
    at::Tensor logits = at::mm(hidden, weight.t());
    memory = logits.const_data_ptr();
    logits.register_hook([&](const at::Tensor& gradient) { gradient_memory = gradient.const_data_ptr(); });
    if (hold) held = logits;
    return cross_entropy(std::exchange(logits, at::Tensor()), labels);
  };
  std::optional<at::Tensor> held;
  const auto free_loss = forward(false, held);
  free_loss.sum.backward();
  CHECK(gradient_memory == memory);
  const at::Tensor expected = weight.grad().clone();
  weight.mutable_grad().reset();

  const auto held_loss = forward(true, held);
  const at::Tensor before = held->detach().clone();
  held_loss.sum.backward();
  CHECK(gradient_memory != memory);
  CHECK(at::equal(*held, before));
  CHECK(at::equal(weight.grad(), expected));
  weight.mutable_grad().reset();

  held.reset();
  const auto retained = forward(false, held);
  retained.sum.backward({}, /*retain_graph=*/true);
  CHECK(gradient_memory != memory);
  retained.sum.backward();
  CHECK(at::equal(weight.grad(), expected * 2));
}

TEST_CASE("cross_entropy over no counted label is 0 with zero gradients; wrong input is refused") {
  const at::Tensor x = leaf(random({3, 5}), at::kFloat), none = at::full({3}, -100, at::kLong);
  const auto loss = cross_entropy(x, none);
  CHECK(loss.tokens == 0);
  CHECK(loss.sum.item<double>() == 0.0);
  CHECK(loss.mean().item<double>() == 0.0);
  loss.mean().backward();
  CHECK(x.grad().eq(0).all().item<bool>());
  CHECK(cross_entropy(at::zeros({0, 5}), at::zeros({0}, at::kLong)).sum.item<double>() == 0.0);
  CHECK_THROWS_AS(cross_entropy(x, at::tensor({1, 5, 2}, at::kLong)), c10::IndexError);
  CHECK_THROWS_AS(cross_entropy(x, at::tensor({1, 2}, at::kLong)), c10::ValueError);
  CHECK_THROWS_AS(cross_entropy(x, at::tensor({1, 2, 3}, at::kInt)), c10::ValueError);
  CHECK_THROWS_AS(cross_entropy(x, none, {.vocabulary_size = 6}), c10::ValueError);
  CHECK_THROWS_AS(cross_entropy(x, none, {.label_smoothing = 1.5}), c10::ValueError);
  CHECK_THROWS_AS(cross_entropy(x, none, {.soft_cap = -1.0}), c10::ValueError);
}

TEST_CASE("cross_entropy keeps NaN visible, and an ignored row's out") {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    at::Tensor values = random({2, 5}, dtype);
    values[0][1] = std::numeric_limits<double>::quiet_NaN();
    const at::Tensor x = leaf(values, dtype);
    CHECK(cross_entropy(x, at::tensor({1, 2}, at::kLong)).sum.isnan().item<bool>());
    const auto loss = cross_entropy(x, at::tensor({-100, 2}, at::kLong));
    loss.sum.backward();
    CHECK(loss.sum.isfinite().item<bool>());
    CHECK(x.grad().isfinite().all().item<bool>());
  }
}
