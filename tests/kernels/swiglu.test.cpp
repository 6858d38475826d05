#include "support/catch_torch.hpp"

#include <limits>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

#include "kernels/cpu/swiglu_rows.hpp"

namespace {

using namespace ilme::kernels;
using ilme::test::difference;
using ilme::test::kernel_type;

struct Inputs {
  Inputs(std::int64_t size, at::ScalarType type)
      : gate((4 * at::randn({size})).to(type)), up(at::randn({size}).to(type)), dout(at::randn({size}).to(type)) {}
  at::Tensor gate, up, dout;
};

struct Result {
  explicit Result(const at::Tensor& like)
      : out(at::empty_like(like)), dgate(at::empty_like(like)), dup(at::empty_like(like)) {}
  at::Tensor out, dgate, dup;
};

SwigluForward forward_arguments(const Inputs& in, const Result& result) {
  return {in.gate.const_data_ptr(),           in.up.const_data_ptr(),
          result.out.mutable_data_ptr(),      in.gate.numel(),
          kernel_type(in.gate.scalar_type()), nullptr};
}

SwigluBackward backward_arguments(const Inputs& in, const Result& result) {
  return {in.dout.const_data_ptr(),
          in.gate.const_data_ptr(),
          in.up.const_data_ptr(),
          result.dgate.mutable_data_ptr(),
          result.dup.mutable_data_ptr(),
          in.gate.numel(),
          kernel_type(in.gate.scalar_type()),
          nullptr};
}

Result kernel(const Inputs& in) {
  Result result(in.gate);
  REQUIRE(table().cpu.swiglu_forward(forward_arguments(in, result)) == nullptr);
  REQUIRE(table().cpu.swiglu_backward(backward_arguments(in, result)) == nullptr);
  return result;
}

/// In float64.
Result exact(const Inputs& in) {
  const at::Tensor gate = in.gate.to(at::kDouble).requires_grad_(), up = in.up.to(at::kDouble).requires_grad_();
  Result result(gate);
  result.out = at::silu(gate) * up;
  result.out.backward(in.dout.to(at::kDouble));
  result.dgate = gate.grad();
  result.dup = up.grad();
  return result;
}

void check(const Result& found, const Result& expected, double tolerance) {
  CHECK(difference(found.out, expected.out) <= tolerance);
  CHECK(difference(found.dgate, expected.dgate) <= tolerance);
  CHECK(difference(found.dup, expected.dup) <= tolerance);
}

}  // namespace

TEST_CASE("every instruction set of the SwiGLU kernel is as close to float64 as the type can be") {
  const auto [type, tolerance] =
      GENERATE(std::pair{at::kFloat, 5e-7}, std::pair{at::kBFloat16, 4e-3}, std::pair{at::kHalf, 5e-4});
  const std::int64_t size = GENERATE(1, 16, 77, 1000);
  at::manual_seed(size);
  const Inputs in(size, type);
  const Result expected = exact(in);
  check(kernel(in), expected, tolerance);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::SwigluRows, cpu::kSwiglu)) {
    CAPTURE(name, type, size);
    Result found(in.gate);
    rows->forward(forward_arguments(in, found), 0, size);
    rows->backward(backward_arguments(in, found), 0, size);
    check(found, expected, tolerance);
  }
}

TEST_CASE("the SwiGLU kernel's bits do not depend on the number of threads, and it may write over the gradient") {
  const Inputs in(50001, at::kBFloat16);
  const auto [one, three] = ilme::test::with_threads(1, 3, [&] { return kernel(in); });
  CHECK(at::equal(one.out, three.out));
  CHECK(at::equal(one.dgate, three.dgate));
  CHECK(at::equal(one.dup, three.dup));
  Result over = kernel(in);
  over.dup = in.dout;
  REQUIRE(table().cpu.swiglu_backward(backward_arguments(in, over)) == nullptr);
  CHECK(at::equal(over.dup, one.dup));
  CHECK(at::equal(over.dgate, one.dgate));
}

TEST_CASE("the SwiGLU kernel's activation at the ends of the range") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::SwigluRows, cpu::kSwiglu)) {
    CAPTURE(name);
    Inputs in(6, at::kFloat);
    in.gate = at::tensor({inf, -inf, nan, 1e4f, -1e4f, 0.0f});
    in.up = in.dout = at::ones(6);
    Result found(in.gate);
    rows->forward(forward_arguments(in, found), 0, 6);
    rows->backward(backward_arguments(in, found), 0, 6);
    CHECK(found.out[0].item<float>() == inf);
    CHECK(found.out.narrow(0, 1, 2).isnan().all().item<bool>());
    CHECK(at::equal(found.out.narrow(0, 3, 3), at::tensor({1e4f, 0.0f, 0.0f})));
    CHECK(found.dgate.narrow(0, 0, 3).isnan().all().item<bool>());
    CHECK(at::equal(found.dgate.narrow(0, 3, 3), at::tensor({1.0f, 0.0f, 0.5f})));
  }
}
