#include "support/catch_torch.hpp"

#include "support/gradients.hpp"

#include <ilme/ops/rms_norm.hpp>

using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

TEST_CASE("rms_norm equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 2e-6},
                                           std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3});
  const std::int64_t size = GENERATE(1, 7, 64, 129);
  const at::Tensor values = random({3, 5, size}) * 2, scale = random({size}, at::kDouble, 2),
                   up = random({3, 5, size}, at::kDouble, 3);
  const at::Tensor x = leaf(values, dtype), w = leaf(scale, dtype);
  const at::Tensor x2 = leaf(values.to(dtype), at::kDouble), w2 = leaf(scale.to(dtype), at::kDouble);
  const at::Tensor y = ilme::ops::rms_norm(x, w, 1e-5);
  const at::Tensor expected = ilme::ops::rms_norm_reference(x2, w2, 1e-5);
  y.backward(up.to(dtype));
  expected.backward(up.to(dtype).to(at::kDouble));
  CHECK(y.scalar_type() == dtype);
  CHECK(relative_error(y, expected) <= tolerance);
  // With one element a row, x / |x| does not change with x: the gradient is rounding noise around zero.
  if (size > 1) CHECK(relative_error(x.grad(), x2.grad()) <= tolerance);
  CHECK(relative_error(w.grad(), w2.grad()) <= tolerance);
}

TEST_CASE("rms_norm takes views, no rows, and a frozen weight; refuses shapes that do not fit") {
  const at::Tensor base = random({6, 4}, at::kFloat), weight = random({6}, at::kFloat, 2);
  const at::Tensor view = base.t();
  CHECK(relative_error(ilme::ops::rms_norm(view, weight, 1e-5),
                       ilme::ops::rms_norm_reference(view.contiguous(), weight, 1e-5)) < 1e-6);
  CHECK(ilme::ops::rms_norm(at::zeros({0, 6}), weight, 1e-5).sizes() == at::IntArrayRef({0, 6}));
  const at::Tensor x = leaf(base.t(), at::kFloat);
  ilme::ops::rms_norm(x, weight, 1e-5).sum().backward();
  CHECK(x.grad().defined());
  CHECK_FALSE(weight.grad().defined());
  CHECK_THROWS_AS(ilme::ops::rms_norm(base, weight, 1e-5), c10::ValueError);
}

TEST_CASE("add_rms_norm equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 2e-6},
                                           std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3});
  const std::int64_t size = GENERATE(7, 64, 129);
  const at::Tensor values = random({3, 5, size}), branch_values = random({3, 5, size}, at::kDouble, 2),
                   scale = random({size}, at::kDouble, 3);
  const at::Tensor x = leaf(values, dtype), branch = leaf(branch_values, dtype), w = leaf(scale, dtype);
  const at::Tensor x2 = leaf(values.to(dtype), at::kDouble), branch2 = leaf(branch_values.to(dtype), at::kDouble),
                   w2 = leaf(scale.to(dtype), at::kDouble);
  const auto [sum, y] = ilme::ops::add_rms_norm(x, branch, w, 1e-5);
  const auto [sum2, y2] = ilme::ops::add_rms_norm_reference(x2, branch2, w2, 1e-5);
  CHECK(at::equal(sum, x + branch));
  CHECK(relative_error(y, y2) <= tolerance);
  // The gradient of the norm alone, of the sum alone, and of both.
  const at::Tensor dsum = random(values.sizes(), at::kDouble, 4).to(dtype),
                   dy = random(values.sizes(), at::kDouble, 5).to(dtype);
  for (const auto& [of_sum, of_norm] : {std::pair{0.0, 1.0}, std::pair{1.0, 0.0}, std::pair{1.0, 1.0}}) {
    const auto loss = [&, a = of_sum, b = of_norm](const at::Tensor& s, const at::Tensor& n) {
      const at::Tensor from_sum = (s * dsum.to(s.scalar_type())).sum(), from_norm = (n * dy.to(n.scalar_type())).sum();
      return a == 0 ? from_norm : b == 0 ? from_sum : from_sum + from_norm;
    };
    const auto [s, n] = ilme::ops::add_rms_norm(x, branch, w, 1e-5);
    loss(s, n).backward();
    const auto [s2, n2] = ilme::ops::add_rms_norm_reference(x2, branch2, w2, 1e-5);
    loss(s2, n2).backward();
    CHECK(relative_error(x.grad(), x2.grad()) <= tolerance);
    CHECK(at::equal(x.grad(), branch.grad()));
    if (of_norm != 0) CHECK(relative_error(w.grad(), w2.grad()) <= tolerance);
    for (const at::Tensor& leaf : {x, branch, w, x2, branch2, w2}) leaf.mutable_grad() = at::Tensor();
  }
}

TEST_CASE("add_rms_norm's gradients are those of finite differences") {
  const at::Tensor dsum = random({4, 9}), dy = random({4, 9}, at::kDouble, 2);
  const auto loss = [&](const std::vector<at::Tensor>& in) {
    const auto [sum, y] = ilme::ops::add_rms_norm(in[0], in[1], in[2], 1e-5);
    return (sum.to(at::kDouble) * dsum).sum() + (y.to(at::kDouble) * dy).sum();
  };
  CHECK(ilme::test::difference_quotient_error(
            loss, {random({4, 9}, at::kFloat, 3), random({4, 9}, at::kFloat, 4), random({9}, at::kFloat, 5)}, 1e-2) <
        1e-3);
}

TEST_CASE("add_rms_norm takes views and no rows, and leaves its inputs alone; refuses shapes that do not fit") {
  const at::Tensor base = random({6, 4}, at::kFloat), weight = random({6}, at::kFloat, 2), copy = base.clone();
  const auto [sum, y] = ilme::ops::add_rms_norm(base.t(), base.t(), weight, 1e-5);
  CHECK(at::equal(base, copy));
  CHECK(at::equal(sum, 2 * base.t()));
  CHECK(relative_error(y, ilme::ops::rms_norm_reference(2 * base.t(), weight, 1e-5)) < 1e-6);
  const at::Tensor none = at::zeros({0, 6});
  CHECK(ilme::ops::add_rms_norm(none, none, weight, 1e-5).second.sizes() == at::IntArrayRef({0, 6}));
  CHECK_THROWS_AS(ilme::ops::add_rms_norm(base, base, weight, 1e-5), c10::ValueError);
  CHECK_THROWS_AS(ilme::ops::add_rms_norm(base.t(), base, weight, 1e-5), c10::ValueError);
}
