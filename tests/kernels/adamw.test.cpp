#include "support/catch_torch.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

#include "kernels/cpu/adamw_rows.hpp"

namespace {

using namespace ilme::kernels;

struct Tensors {
  at::Tensor parameter, gradient, master, exp_avg, exp_avg_sq;

  /// `state`: of the first moment; a master stands beside a bf16 parameter when it is float32.
  Tensors(std::int64_t size, at::ScalarType type, at::ScalarType state) {
    at::manual_seed(static_cast<std::uint64_t>(size));
    parameter = at::randn({size}).to(type);
    gradient = at::randn({size});
    if (type != state) master = parameter.to(at::kFloat);
    exp_avg = (0.1 * at::randn({size})).to(state);
    exp_avg_sq = at::rand({size});
  }
  AdamWTensor arguments() {
    const DType dtype = parameter.scalar_type() == at::kFloat      ? DType::float32
                        : parameter.scalar_type() == at::kBFloat16 ? DType::bfloat16
                                                                   : DType::float16;
    return {parameter.mutable_data_ptr(),
            gradient.const_data_ptr(),
            master.defined() ? master.mutable_data_ptr<float>() : nullptr,
            exp_avg.mutable_data_ptr(),
            exp_avg_sq.mutable_data_ptr<float>(),
            parameter.numel(),
            dtype,
            DType::float32,
            0.99F,
            0.01F,
            1.5F,
            0x1234567890ABCDEFULL};
  }
  bool operator==(const Tensors& other) const {
    return at::equal(parameter, other.parameter) && at::equal(exp_avg, other.exp_avg) &&
           at::equal(exp_avg_sq, other.exp_avg_sq) && (!master.defined() || at::equal(master, other.master));
  }
};

AdamWStep step_of(const std::vector<AdamWTensor>& tensors) {
  return {tensors.data(), static_cast<std::int64_t>(tensors.size()), nullptr, 0.9, 0.95, 1e-8};
}

}  // namespace

TEST_CASE("the bits of an AdamW step do not depend on the number of threads or on the other tensors") {
  const auto [type, state] = GENERATE(std::pair{at::kFloat, at::kFloat}, std::pair{at::kBFloat16, at::kFloat},
                                      std::pair{at::kBFloat16, at::kBFloat16}, std::pair{at::kHalf, at::kFloat});
  const std::vector<std::int64_t> sizes{5, 0, 70001, 16384, 1, 32768 + 17};
  std::vector<Tensors> together, alone;
  std::vector<AdamWTensor> list;
  for (const std::int64_t size : sizes) {
    alone.emplace_back(size, type, state);
    list.push_back(together.emplace_back(size, type, state).arguments());
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  REQUIRE(table().cpu.adamw_step(step_of(list)) == nullptr);
  at::set_num_threads(1);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CAPTURE(type, state, sizes[i]);
    REQUIRE(table().cpu.adamw_step(step_of({alone[i].arguments()})) == nullptr);
    CHECK(alone[i] == together[i]);
    CHECK((sizes[i] == 0 || !(alone[i] == Tensors(sizes[i], type, state))));
  }
  at::set_num_threads(threads);
}

TEST_CASE("every instruction set of the AdamW kernel gives the same result") {
  const auto [type, state] = GENERATE(std::pair{at::kFloat, at::kFloat}, std::pair{at::kBFloat16, at::kFloat},
                                      std::pair{at::kBFloat16, at::kBFloat16}, std::pair{at::kHalf, at::kFloat});
  Tensors expected(1009, type, state);
  REQUIRE(table().cpu.adamw_step(step_of({expected.arguments()})) == nullptr);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::AdamWRows, cpu::kAdamW)) {
    CAPTURE(name, type, state);
    Tensors found(1009, type, state);
    const std::vector<AdamWTensor> list{found.arguments()};
    rows->step(step_of(list), list[0], 0, 512);
    rows->step(step_of(list), list[0], 512, 1009);
    const auto close = [](const at::Tensor& a, const at::Tensor& b, double tolerance) {
      return at::allclose(a.to(at::kFloat), b.to(at::kFloat), tolerance, 1e-6);
    };
    const double tolerance = type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3;
    CHECK(close(found.parameter, expected.parameter, tolerance));
    CHECK(close(found.exp_avg, expected.exp_avg, state == at::kFloat ? 1e-6 : 8e-3));
    CHECK(close(found.exp_avg_sq, expected.exp_avg_sq, 1e-6));
    // Fused multiply-adds move a last bit: the same random words round all but a few the same way.
    CHECK((found.parameter != expected.parameter).sum().item<std::int64_t>() <= (type == at::kFloat ? 1009 : 8));
  }
}
