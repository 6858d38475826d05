#include "support/catch_torch.hpp"

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

#include "kernels/cpu/rms_norm_rows.hpp"

namespace {

using namespace ilme::kernels;

using ilme::test::difference;
using ilme::test::kernel_type;

constexpr float kEps = 1e-5f;

struct Result {
  at::Tensor y, dx, dweight;
};

/// What ATen computes: as Transformers' LlamaRMSNorm, in the given type with statistics in float32.
Result reference(const at::Tensor& x_in, const at::Tensor& weight_in, const at::Tensor& dy) {
  const at::Tensor x = x_in.detach().clone().requires_grad_(), weight = weight_in.detach().clone().requires_grad_();
  const at::Tensor precise = x.to(at::kFloat);
  const at::Tensor scale = (precise.pow(2).mean(-1, true) + kEps).rsqrt();
  const at::Tensor y = weight * (precise * scale).to(x.scalar_type());
  y.backward(dy);
  return {y.detach(), x.grad(), weight.grad()};
}

RmsNormForward forward_arguments(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y, at::Tensor& inv_rms) {
  return {x.const_data_ptr(),
          weight.const_data_ptr(),
          y.mutable_data_ptr(),
          inv_rms.mutable_data_ptr<float>(),
          x.size(0),
          x.size(1),
          kEps,
          kernel_type(x.scalar_type()),
          nullptr};
}

Result kernel(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& dy) {
  const DeviceTable& cpu = table().cpu;
  const auto floats = x.options().dtype(at::kFloat);
  Result result{at::empty_like(x), at::empty_like(x), at::zeros({x.size(1)}, floats)};
  at::Tensor inv_rms = at::empty({x.size(0)}, floats);
  REQUIRE(cpu.rms_norm_forward(forward_arguments(x, weight, result.y, inv_rms)) == nullptr);
  at::Tensor workspace = at::empty({cpu.rms_norm_backward_workspace(x.size(0), x.size(1))}, floats);
  REQUIRE(cpu.rms_norm_backward({dy.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(),
                                 inv_rms.const_data_ptr<float>(), result.dx.mutable_data_ptr(),
                                 result.dweight.mutable_data_ptr<float>(), workspace.mutable_data_ptr<float>(),
                                 x.size(0), x.size(1), kernel_type(x.scalar_type()), nullptr}) == nullptr);
  return result;
}

}  // namespace

TEST_CASE("the RMSNorm kernel equals ATen") {
  const auto [type, tolerance] =
      GENERATE(std::tuple{at::kFloat, 2e-6}, std::tuple{at::kBFloat16, 1e-2}, std::tuple{at::kHalf, 2e-3});
  const auto [rows, size] = GENERATE(std::tuple{1, 1}, std::tuple{3, 7}, std::tuple{5, 16}, std::tuple{17, 33},
                                     std::tuple{2, 1000}, std::tuple{131, 257}, std::tuple{300, 2048});
  CAPTURE(type, rows, size);
  at::manual_seed(rows * 1000 + size);
  const at::Tensor x = (3 * at::randn({rows, size})).to(type), weight = (1 + 0.3 * at::randn({size})).to(type);
  const at::Tensor dy = at::randn({rows, size}).to(type);
  const Result expected = reference(x, weight, dy), found = kernel(x, weight, dy);
  CHECK(difference(found.y, expected.y) <= tolerance);
  CHECK(difference(found.dx, expected.dx) <= tolerance);
  CHECK(difference(found.dweight, expected.dweight) <= tolerance);
  // Against float64, the kernel is as close as the output type can be.
  const Result exact = [&] {
    const at::Tensor xd = x.to(at::kDouble).requires_grad_(), wd = weight.to(at::kDouble).requires_grad_();
    const at::Tensor y = wd * xd * (xd.pow(2).mean(-1, true) + kEps).rsqrt();
    y.backward(dy.to(at::kDouble));
    return Result{y.detach(), xd.grad(), wd.grad()};
  }();
  CHECK(difference(found.dweight, exact.dweight) <= 2e-6);
  CHECK(difference(found.dx, exact.dx) <= tolerance);
}

TEST_CASE("the RMSNorm kernel adds to the weight gradient, and its bits do not depend on the number of threads") {
  const at::Tensor x = at::randn({513, 96}), weight = at::randn({96}), dy = at::randn({513, 96});
  const auto [one, three] = ilme::test::with_threads(1, 3, [&] { return kernel(x, weight, dy); });
  CHECK(at::equal(one.y, three.y));
  CHECK(at::equal(one.dx, three.dx));
  CHECK(at::equal(one.dweight, three.dweight));
}

TEST_CASE("every instruction set of the RMSNorm kernel gives the same result") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const at::Tensor x = at::randn({9, 77}).to(type), weight = at::randn({77}).to(type), dy = at::randn({9, 77}).to(type);
  const Result expected = kernel(x, weight, dy);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::RmsNormRows, cpu::kRmsNorm)) {
    CAPTURE(name, type);
    Result found{at::empty_like(x), at::empty_like(x), at::zeros({77})};
    at::Tensor inv_rms = at::empty({9});
    rows->forward(forward_arguments(x, weight, found.y, inv_rms), 0, 9);
    rows->backward({dy.const_data_ptr(), x.const_data_ptr(), weight.const_data_ptr(), inv_rms.const_data_ptr<float>(),
                    found.dx.mutable_data_ptr(), nullptr, nullptr, 9, 77, kernel_type(type), nullptr},
                   found.dweight.mutable_data_ptr<float>(), 0, 9);
    const double tolerance = type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3;
    CHECK(difference(found.y, expected.y) <= tolerance);
    CHECK(difference(found.dx, expected.dx) <= tolerance);
    CHECK(difference(found.dweight, expected.dweight) <= 1e-6);
  }
}

TEST_CASE("the RMSNorm kernel keeps NaN and infinity visible") {
  at::Tensor x = at::ones({2, 20}, at::kBFloat16);
  x[0][3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor weight = at::ones({20}, at::kBFloat16);
  const Result result = kernel(x, weight, at::ones_like(x));
  CHECK(result.y[0].isnan().all().item<bool>());
  CHECK(result.y[1].isfinite().all().item<bool>());
}

TEST_CASE("the RMSNorm kernel with a branch gives the bits of the addition and the norm by themselves") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const std::int64_t size = GENERATE(7, 64, 77);
  const at::Tensor x = at::randn({9, size}).to(type), branch = at::randn({9, size}).to(type),
                   weight = at::randn({size}).to(type), dy = at::randn({9, size}).to(type),
                   dsum = at::randn({9, size}).to(type);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::RmsNormRows, cpu::kRmsNorm)) {
    CAPTURE(name, type, size);
    at::Tensor y = at::empty_like(x), sum = at::empty_like(x), dx = at::empty_like(x), dweight = at::zeros({size}),
               inv_rms = at::empty({9});
    RmsNormForward forward = forward_arguments(x, weight, y, inv_rms);
    forward.branch = branch.const_data_ptr();
    forward.sum = sum.mutable_data_ptr();
    rows->forward(forward, 0, 9);
    CHECK(at::equal(sum, x + branch));
    at::Tensor y_alone = at::empty_like(x), inv_rms_alone = at::empty({9});
    rows->forward(forward_arguments(sum, weight, y_alone, inv_rms_alone), 0, 9);
    CHECK(at::equal(y, y_alone));
    CHECK(at::equal(inv_rms, inv_rms_alone));
    RmsNormBackward backward{dy.const_data_ptr(),
                             sum.const_data_ptr(),
                             weight.const_data_ptr(),
                             inv_rms.const_data_ptr<float>(),
                             dx.mutable_data_ptr(),
                             nullptr,
                             nullptr,
                             9,
                             size,
                             kernel_type(type),
                             nullptr};
    rows->backward(backward, dweight.mutable_data_ptr<float>(), 0, 9);
    const at::Tensor expected = dx.to(at::kDouble) + dsum.to(at::kDouble), dweight_alone = dweight.clone();
    at::Tensor over = dsum.clone();
    backward.dsum = backward.dx = over.mutable_data_ptr();
    rows->backward(backward, dweight.zero_().mutable_data_ptr<float>(), 0, 9);
    CHECK(difference(over, expected) <= (type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3));
    CHECK(at::equal(dweight, dweight_alone));
  }
}
