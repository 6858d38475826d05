#include "support/catch_torch.hpp"

#include <limits>

#include "support/gradients.hpp"

#include <ilme/ops/swiglu.hpp>

using ilme::ops::swiglu;
using ilme::ops::swiglu_reference;
using ilme::test::leaf;
using ilme::test::random;
using ilme::test::relative_error;

TEST_CASE("swiglu equals its twin, values and gradients") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 5e-7},
                                           std::pair{at::kBFloat16, 3e-3}, std::pair{at::kHalf, 4e-4});
  const std::int64_t size = GENERATE(1, 7, 64, 129);
  const at::Tensor gate_values = random({3, 5, size}) * 4, up_values = random({3, 5, size}, at::kDouble, 2),
                   dout = random({3, 5, size}, at::kDouble, 3).to(dtype);
  const at::Tensor gate = leaf(gate_values, dtype), up = leaf(up_values, dtype);
  const at::Tensor gate2 = leaf(gate_values.to(dtype), at::kDouble), up2 = leaf(up_values.to(dtype), at::kDouble);
  const at::Tensor out = swiglu(gate, up), expected = swiglu_reference(gate2, up2);
  out.backward(dout);
  expected.backward(dout.to(at::kDouble));
  CHECK(out.scalar_type() == dtype);
  CHECK(relative_error(out, expected) <= tolerance);
  CHECK(relative_error(gate.grad(), gate2.grad()) <= tolerance);
  CHECK(relative_error(up.grad(), up2.grad()) <= tolerance);
}

TEST_CASE("swiglu's gradients are those of finite differences") {
  const at::Tensor dout = random({4, 33});
  const auto loss = [&](const std::vector<at::Tensor>& x) { return (swiglu(x[0], x[1]).to(at::kDouble) * dout).sum(); };
  CHECK(ilme::test::difference_quotient_error(loss, {random({4, 33}), random({4, 33}, at::kDouble, 2)}, 1e-5) < 1e-8);
  CHECK(ilme::test::difference_quotient_error(loss, {random({4, 33}, at::kFloat), random({4, 33}, at::kFloat, 2)},
                                              1e-2) < 1e-3);
}

TEST_CASE("swiglu takes views, an empty batch, and infinities; refuses shapes that differ") {
  const at::Tensor wide = leaf(random({6, 10}), at::kFloat);
  const auto parts = wide.chunk(2, 1);
  const at::Tensor out = swiglu(parts[0], parts[1]);
  CHECK(relative_error(out, swiglu_reference(parts[0], parts[1])) < 1e-6);
  out.sum().backward();
  CHECK(wide.grad().sizes() == wide.sizes());
  CHECK(swiglu(at::zeros({0, 6}), at::zeros({0, 6})).sizes() == at::IntArrayRef({0, 6}));
  CHECK_THROWS_AS(swiglu(wide, out), c10::ValueError);

  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor extreme = at::tensor({inf, -inf, nan, 200.0f, -200.0f, -0.0f});
  const at::NoGradGuard no_gradient;
  const at::Tensor found = swiglu(extreme, at::ones(6)), expected = swiglu_reference(extreme, at::ones(6));
  CHECK(at::allclose(found, expected, 1e-6, 1e-30, /*equal_nan=*/true));
}

TEST_CASE("swiglu's backward leaves a gradient alone that others can see") {
  const at::Tensor gate = leaf(random({5, 8}), at::kFloat), up = leaf(random({5, 8}, at::kDouble, 2), at::kFloat);
  const at::Tensor dout = random({5, 8}, at::kFloat, 3), copy = dout.clone();
  swiglu(gate, up).backward(dout);
  CHECK(at::equal(dout, copy));
  at::Tensor kept;  // a gradient that comes from another operation, kept by a hook
  const at::Tensor out = swiglu(gate, up);
  out.register_hook([&](const at::Tensor& gradient) { kept = gradient; });
  (out * 2).backward(dout);
  CHECK(at::equal(kept, 2 * copy));
}

TEST_CASE("swiglu's backward writes over a gradient that nobody else can see") {
  const at::Tensor gate = leaf(random({5, 8}), at::kFloat), up = leaf(random({5, 8}, at::kDouble, 2), at::kFloat);
  const void* incoming = nullptr;
  const at::Tensor out = swiglu(gate, up);
  out.register_hook([&](const at::Tensor& gradient) { incoming = gradient.const_data_ptr(); });
  (out * 2).sum().backward();
  CHECK(up.grad().const_data_ptr() == incoming);
}
