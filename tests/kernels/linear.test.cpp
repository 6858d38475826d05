#include "support/catch_torch.hpp"

#include <tuple>
#include <vector>

#include <ilme/ops/linear.hpp>

#include "support/kernels.hpp"

#include "kernels/cpu/linear_rows.hpp"

using namespace ilme;

namespace {

at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kFloat);
}

}  // namespace

TEST_CASE("the product of few rows equals the product in float64, in every type") {
  const at::NoGradGuard no_gradient;
  for (const auto& [type, tolerance] :
       std::vector<std::pair<at::ScalarType, double>>{{at::kFloat, 2e-6}, {at::kBFloat16, 4.0e-3}, {at::kHalf, 5e-4}}) {
    for (const auto& [rows, in, out] : std::vector<std::tuple<int, int, int>>{
             {1, 1, 1}, {1, 16, 4}, {2, 31, 9}, {3, 64, 7}, {4, 100, 17}, {7, 576, 33}, {8, 33, 8}, {16, 160, 40}}) {
      const at::Tensor x = random({rows, in}, 1).to(type), weight = random({out, in}, 2).to(type),
                       bias = random({out}, 3).to(type);
      const at::Tensor precise = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
      const at::Tensor scale = at::linear(x.to(at::kDouble).abs(), weight.to(at::kDouble).abs()) + 1;
      CAPTURE(type, rows, in, out);
      const at::Tensor y = ops::linear(x, weight, bias);
      REQUIRE(y.scalar_type() == type);
      CHECK(((y.to(at::kDouble) - precise).abs() / at::maximum(precise.abs(), scale * 0.05)).max().item<double>() <
            tolerance);
      // Not rounded to the type, the error is that of float32 sums.
      const at::Tensor fine = ops::logits(x, weight).to(at::kDouble);
      CHECK(((fine - (precise - bias.to(at::kDouble))).abs() / scale).max().item<double>() < 1e-6);
      // A row alone has the same bits.
      for (int row = 0; row < rows; ++row) {
        REQUIRE(at::equal(ops::linear(x.narrow(0, row, 1).contiguous(), weight, bias)[0], y[row]));
      }
    }
  }
}

TEST_CASE("what the kernel is not made for goes to ATen, with gradients where they are wanted") {
  const at::Tensor weight = random({5, 12}, 1).requires_grad_();
  const at::Tensor x = random({2, 3, 12}, 2);
  const at::Tensor y = ops::linear(x, weight);
  CHECK(y.requires_grad());
  CHECK(at::equal(y, at::linear(x, weight)));
  const at::NoGradGuard no_gradient;
  CHECK(at::allclose(ops::linear(x.transpose(0, 1), weight), y.transpose(0, 1)));
  CHECK(at::equal(ops::linear(x.to(at::kDouble), weight.to(at::kDouble)),
                  at::linear(x.to(at::kDouble), weight.to(at::kDouble))));
  const at::Tensor many = random({ops::kFewRows + 1, 12}, 3);
  CHECK(at::equal(ops::linear(many, weight), at::linear(many, weight)));
  CHECK_THROWS(ops::linear(random({2, 11}, 1), weight));
}

TEST_CASE("every instruction set that this processor has multiplies alike") {
  namespace cpu = kernels::cpu;
  for (const auto& [type, dtype] :
       {std::pair{at::kFloat, kernels::DType::float32}, std::pair{at::kBFloat16, kernels::DType::bfloat16},
        std::pair{at::kHalf, kernels::DType::float16}}) {
    const at::Tensor x = random({7, 100}, 1).to(type), weight = random({21, 100}, 2).to(type);
    const at::Tensor precise = at::linear(x.to(at::kDouble), weight.to(at::kDouble));
    for (const auto& [name, rows] : ILME_RUNNABLE(cpu::LinearRows, cpu::kLinear)) {
      CAPTURE(type, name);
      at::Tensor y = at::full({7, 21}, 99.0, at::kFloat), packed = at::empty({7 * 128}, at::kFloat);
      const kernels::LinearForward arguments{
          x.const_data_ptr(),     weight.const_data_ptr(), nullptr, y.mutable_data_ptr(), 7, 100, 21, dtype,
          kernels::DType::float32};
      rows->pack(arguments, packed.mutable_data_ptr());
      rows->columns(arguments, packed.const_data_ptr(), 0, 8);
      rows->columns(arguments, packed.const_data_ptr(), 8, 21);
      CHECK(at::allclose(y.to(at::kDouble), precise, 1e-5, 1e-4));
    }
  }
}
