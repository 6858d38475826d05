#include "support/catch_torch.hpp"

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "support/kernels.hpp"

#include "kernels/cpu/cross_entropy_rows.hpp"

namespace {

using namespace ilme::kernels;

using ilme::test::kernel_type;

constexpr std::int64_t kIgnored = -100;

struct Terms {
  float label_smoothing, z_loss, soft_cap;
};

struct Result {
  at::Tensor loss, log_normalizer, log_probability, gradient;
};

/// In float64, by autograd.
Result reference(const at::Tensor& logits, const at::Tensor& labels, std::int64_t vocabulary, const at::Tensor& scales,
                 Terms terms) {
  const at::Tensor x = logits.to(at::kDouble).clone().requires_grad_();
  at::Tensor capped = x.narrow(1, 0, vocabulary);
  if (terms.soft_cap > 0) capped = terms.soft_cap * (capped / terms.soft_cap).tanh();
  const at::Tensor counted = labels.ne(kIgnored), normalizer = capped.logsumexp(1);
  const at::Tensor loss =
      (at::cross_entropy_loss(capped, labels, {}, at::Reduction::None, kIgnored, terms.label_smoothing) +
       terms.z_loss * normalizer.square()) *
      counted;
  const at::Tensor chosen = capped.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
  (loss * scales).sum().backward();
  return {loss.detach(), (normalizer * counted).detach(), ((chosen - normalizer) * counted).detach(), x.grad()};
}

CrossEntropy arguments(const at::Tensor& logits, const at::Tensor& labels, std::int64_t vocabulary, Terms terms,
                       Result& result) {
  return {.logits = logits.const_data_ptr(),
          .labels = labels.const_data_ptr<std::int64_t>(),
          .loss = result.loss.mutable_data_ptr<float>(),
          .log_normalizer = result.log_normalizer.mutable_data_ptr<float>(),
          .log_probability = result.log_probability.mutable_data_ptr<float>(),
          .gradient = result.gradient.mutable_data_ptr(),
          .scales = nullptr,
          .rows = logits.size(0),
          .vocabulary = vocabulary,
          .stride = logits.size(1),
          .ignore_index = kIgnored,
          .label_smoothing = terms.label_smoothing,
          .z_loss = terms.z_loss,
          .soft_cap = terms.soft_cap,
          .dtype = kernel_type(logits.scalar_type()),
          .stream = nullptr};
}

Result empty_result(const at::Tensor& logits) {
  const auto floats = at::TensorOptions(at::kFloat);
  const std::int64_t rows = logits.size(0);
  return {at::empty({rows}, floats), at::empty({rows}, floats), at::empty({rows}, floats), at::empty_like(logits)};
}

/// Forward with the gradient over the logits.
Result kernel(const at::Tensor& logits, const at::Tensor& labels, std::int64_t vocabulary, Terms terms) {
  Result result = empty_result(logits);
  result.gradient = logits.clone();
  REQUIRE(table().cpu.cross_entropy_forward(arguments(result.gradient, labels, vocabulary, terms, result)) == nullptr);
  return result;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const double scale = std::max(b.to(at::kDouble).abs().max().item<double>(), 0.1);
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / scale;
}

at::Tensor some_labels(std::int64_t rows, std::int64_t vocabulary) {
  at::Tensor labels = at::arange(rows, at::kLong) * 1237 % vocabulary;
  for (std::int64_t i = 1; i < rows; i += 3) labels[i] = kIgnored;
  return labels;
}

}  // namespace

TEST_CASE("the cross-entropy kernel equals ATen in float64") {
  const auto [type, tolerance] =
      GENERATE(std::tuple{at::kFloat, 2e-6}, std::tuple{at::kBFloat16, 4e-3}, std::tuple{at::kHalf, 5e-4});
  const auto [rows, vocabulary, padding] =
      GENERATE(std::tuple{1, 1, 0}, std::tuple{4, 7, 2}, std::tuple{5, 16, 0}, std::tuple{3, 1024, 0},
               std::tuple{7, 1025, 9}, std::tuple{6, 3331, 1});
  const Terms terms = GENERATE(Terms{0, 0, 0}, Terms{0.1f, 0, 0}, Terms{0, 1e-2f, 0}, Terms{0.2f, 1e-3f, 5.0f});
  CAPTURE(type, rows, vocabulary, padding, terms.label_smoothing, terms.z_loss, terms.soft_cap);
  at::manual_seed(rows * 1000 + vocabulary);
  const at::Tensor logits = (4 * at::randn({rows, vocabulary + padding}) - 3).to(type);
  const at::Tensor labels = some_labels(rows, vocabulary), scales = at::rand({rows}) - 0.3;
  const Result expected = reference(logits, labels, vocabulary, at::ones({rows}), terms);
  Result found = kernel(logits, labels, vocabulary, terms);
  CHECK(difference(found.loss, expected.loss) <= 2e-6);
  CHECK(difference(found.log_normalizer, expected.log_normalizer) <= 2e-6);
  CHECK(difference(found.log_probability, expected.log_probability) <= 2e-6);
  CHECK(difference(found.gradient, expected.gradient) <= tolerance);
  // The backward by itself, with upstream gradients, over the logits.
  found.gradient = logits.clone();
  CrossEntropy backward = arguments(found.gradient, labels, vocabulary, terms, found);
  backward.scales = scales.const_data_ptr<float>();
  REQUIRE(table().cpu.cross_entropy_backward(backward) == nullptr);
  CHECK(difference(found.gradient, reference(logits, labels, vocabulary, scales, terms).gradient) <= tolerance);
}

TEST_CASE("the bits of the cross-entropy kernel do not depend on the number of threads") {
  const at::Tensor logits = at::randn({301, 777}), labels = some_labels(301, 777);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result one = kernel(logits, labels, 777, {0.1f, 1e-4f, 30.0f});
  at::set_num_threads(3);
  const Result three = kernel(logits, labels, 777, {0.1f, 1e-4f, 30.0f});
  at::set_num_threads(threads);
  CHECK(at::equal(one.loss, three.loss));
  CHECK(at::equal(one.gradient, three.gradient));
}

TEST_CASE("every instruction set of the cross-entropy kernel gives the same result") {
  const at::ScalarType type = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const Terms terms = GENERATE(Terms{0, 0, 0}, Terms{0.1f, 1e-3f, 20.0f});
  const at::Tensor logits = at::randn({5, 2077}).mul_(5).to(type), labels = some_labels(5, 2070);
  const Result expected = kernel(logits, labels, 2070, terms);
  for (const auto& [name, rows] : ILME_RUNNABLE(cpu::CrossEntropyRows, cpu::kCrossEntropy)) {
    CAPTURE(name, type);
    Result found = empty_result(logits);
    rows->forward(arguments(logits, labels, 2070, terms, found), 0, 5);
    CHECK(difference(found.loss, expected.loss) <= 1e-6);
    CHECK(difference(found.log_probability, expected.log_probability) <= 1e-6);
    CHECK(difference(found.gradient, expected.gradient) <= (type == at::kFloat ? 2e-6 : 8e-3));
  }
}

TEST_CASE("the cross-entropy kernel keeps NaN and infinity visible, and minus infinity counts nothing") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor logits = at::randn({6, 3000});
  logits[0][1700] = nan;
  logits[1][2999] = infinity;
  logits[2].slice(0, 0, 2500).fill_(-infinity);  // whole blocks that are masked
  logits[3].fill_(-infinity);
  logits[4].slice(0, 0, 1024).fill_(-infinity);
  logits[4][5] = nan;
  const at::Tensor labels = at::full({6}, 2600, at::kLong);
  const Result found = kernel(logits, labels, 3000, {0, 0, 0});
  for (const int row : {0, 1, 3, 4}) {
    CAPTURE(row);
    CHECK(found.loss[row].isnan().item<bool>());
    CHECK(found.gradient[row].isnan().any().item<bool>());
  }
  const at::Tensor expected = at::cross_entropy_loss(logits, labels, {}, at::Reduction::None);
  CHECK(difference(found.loss[2], expected[2]) <= 1e-6);
  CHECK(found.gradient[2].slice(0, 0, 2500).eq(0).all().item<bool>());
  CHECK(difference(found.loss[5], expected[5]) <= 1e-6);
}

TEST_CASE("large and far apart logits neither overflow nor vanish in the cross-entropy kernel") {
  at::Tensor logits = at::full({2, 2050}, -3000.0);
  logits[0][2049] = -2990.0;  // larger than what came before, in the part of a vector at the end
  logits[1][0] = 3000.0;
  const at::Tensor labels = at::tensor({2049, 1}, at::kLong);
  const Result found = kernel(logits, labels, 2050, {0, 0, 0}),
               expected = reference(logits, labels, 2050, at::ones({2}), {0, 0, 0});
  CHECK(found.loss.allclose(expected.loss.to(at::kFloat), 1e-5, 1e-3));
  CHECK(difference(found.gradient, expected.gradient) <= 1e-3);
}
