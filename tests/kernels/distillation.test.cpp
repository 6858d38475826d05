#include "support/catch_torch.hpp"

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

#include "kernels/cpu/distillation_rows.hpp"

namespace {

using namespace ilme::kernels;

using ilme::test::kernel_type;

struct Result {
  at::Tensor cross_entropy, divergence, gradient;
};

Result empty_result(const at::Tensor& logits) {
  return {at::empty({logits.size(0)}, at::kFloat), at::empty({logits.size(0)}, at::kFloat), at::empty_like(logits)};
}

Distillation arguments(const at::Tensor& student, const at::Tensor& teacher, const at::Tensor& labels, bool reverse,
                       float soft_cap, Result& result) {
  return {.student = student.const_data_ptr(),
          .teacher = teacher.const_data_ptr(),
          .labels = labels.const_data_ptr<std::int64_t>(),
          .cross_entropy = result.cross_entropy.mutable_data_ptr<float>(),
          .divergence = result.divergence.mutable_data_ptr<float>(),
          .gradient = result.gradient.mutable_data_ptr(),
          .rows = student.size(0),
          .vocabulary = student.size(1),
          .cross_entropy_weight = 0.25f,
          .temperature = 2.0f,
          .soft_cap = soft_cap,
          .reverse = reverse,
          .dtype = kernel_type(student.scalar_type()),
          .stream = nullptr};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         b.to(at::kDouble).abs().max().item<double>();
}

}  // namespace

TEST_CASE("every instruction set of the distillation kernel equals ATen in float64") {
  const auto [type, tolerance] =
      GENERATE(std::tuple{at::kFloat, 5e-6}, std::tuple{at::kBFloat16, 8e-3}, std::tuple{at::kHalf, 1e-3});
  const std::int64_t vocabulary = GENERATE(3, 16, 2077);
  const bool reverse = GENERATE(false, true);
  const float soft_cap = GENERATE(0.0f, 4.0f);
  const at::Tensor student = at::randn({5, vocabulary}).mul_(3).to(type),
                   teacher = at::randn({5, vocabulary}).mul_(3).to(type);
  const at::Tensor labels = at::arange(5, at::kLong) * 991 % vocabulary;

  const auto capped = [&](const at::Tensor& x) { return soft_cap > 0 ? (x / soft_cap).tanh() * soft_cap : x; };
  const at::Tensor x = student.to(at::kDouble).requires_grad_(), s = capped(x);
  const at::Tensor log_p = (s / 2).log_softmax(1), log_q = (capped(teacher.to(at::kDouble)) / 2).log_softmax(1);
  const at::Tensor divergence = 4 * (reverse ? log_p.exp() * (log_p - log_q) : log_q.exp() * (log_q - log_p)).sum(1);
  const at::Tensor cross_entropy = at::cross_entropy_loss(s, labels, {}, at::Reduction::None);
  (0.25 * cross_entropy + 0.75 * divergence).sum().backward();

  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::DistillationRows, cpu::kDistillation)) {
    CAPTURE(name, type, vocabulary, reverse, soft_cap);
    Result found = empty_result(student);
    rows->losses(arguments(student, teacher, labels, reverse, soft_cap, found), 0, 5);
    CHECK(difference(found.cross_entropy, cross_entropy) <= 2e-6);
    CHECK(difference(found.divergence, divergence) <= 5e-6);
    CHECK(difference(found.gradient, x.grad()) <= tolerance);
  }
}

TEST_CASE("the distillation kernel keeps NaN visible, takes masked logits, and has bits of its own") {
  at::Tensor student = at::randn({301, 333}), teacher = at::randn({301, 333});
  student[0][7] = std::numeric_limits<float>::quiet_NaN();
  student[1].slice(0, 0, 9).fill_(-std::numeric_limits<float>::infinity());
  teacher[1].slice(0, 0, 9).fill_(-std::numeric_limits<float>::infinity());
  const at::Tensor labels = at::full({301}, 20, at::kLong);
  const bool reverse = GENERATE(false, true);
  const int threads = at::get_num_threads();
  const auto run = [&](int count) {
    Result result = empty_result(student);
    at::set_num_threads(count);
    REQUIRE(table().cpu.distillation(arguments(student, teacher, labels, reverse, 0.0f, result)) == nullptr);
    at::set_num_threads(threads);
    return result;
  };
  const Result one = run(1), three = run(3);
  CHECK(one.divergence[0].isnan().item<bool>());
  CHECK(one.gradient[0].isnan().any().item<bool>());
  CHECK(one.divergence[1].isfinite().item<bool>());
  CHECK(at::equal(one.divergence.slice(0, 1), three.divergence.slice(0, 1)));
  CHECK(at::equal(one.gradient.slice(0, 1), three.gradient.slice(0, 1)));
}
