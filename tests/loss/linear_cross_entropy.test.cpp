#include "support/catch_torch.hpp"

#include <tuple>

#include "support/gradients.hpp"

#include <ilme/loss/distillation.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>

using ilme::ops::CrossEntropyOptions;
using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

TEST_CASE("the fused and the plain module agree with every option") {
  const CrossEntropyOptions options = GENERATE(
      CrossEntropyOptions{}, CrossEntropyOptions{.chunk_bytes = 1, .vocabulary_size = 30, .label_smoothing = 0.1},
      CrossEntropyOptions{.ignore_index = 3, .z_loss = 1e-2, .soft_cap = 4.0});
  const at::Tensor labels = at::arange(34, at::kLong).view({2, 17}) % 30;
  const auto run = [&](auto&& loss) {
    const at::Tensor x = leaf(random({2, 17, 9}), at::kFloat), w = leaf(random({37, 9}, at::kDouble, 2), at::kFloat);
    const auto result = loss(x, w, labels);
    result.mean().backward();
    return std::tuple{result, x.grad(), w.grad()};
  };
  const auto [fused, dx, dw] = run(ilme::loss::LinearCrossEntropy{options});
  const auto [plain, plain_dx, plain_dw] = run(ilme::loss::CrossEntropy{options});
  CHECK(fused.tokens == plain.tokens);
  CHECK(relative_error(fused.sum, plain.sum) <= 1e-5);
  CHECK(relative_error(dx, plain_dx) <= 1e-5);
  CHECK(relative_error(dw, plain_dw) <= 1e-5);
}

TEST_CASE("the losses fit where a trainer takes one, and distillation is a module too") {
  static_assert(ilme::loss::LossModule<ilme::loss::LinearCrossEntropy>);
  static_assert(ilme::loss::LossModule<ilme::loss::CrossEntropy>);
  const at::Tensor x = random({2, 3, 4}), w = random({7, 4}, at::kDouble, 2), t = random({2, 3, 5}, at::kDouble, 3),
                   tw = random({7, 5}, at::kDouble, 4), labels = at::arange(6, at::kLong).view({2, 3});
  const ilme::loss::Distillation distillation{{.temperature = 2.0}};
  CHECK(relative_error(distillation(x, w, t, tw, labels).sum,
                       ilme::ops::linear_distillation_reference(x, w, t, tw, labels, {.temperature = 2.0}).sum) <=
        1e-10);
}
