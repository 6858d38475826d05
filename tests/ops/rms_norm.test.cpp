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
