#include "support/catch_torch.hpp"

#include "support/gradients.hpp"
#include "support/temporary.hpp"

#include <memory>
#include <string>
#include <utility>

#include <ilme/io/safetensors.hpp>
#include <ilme/ops/linear_cross_entropy.hpp>

using ilme::ops::CrossEntropyOptions;
using ilme::ops::linear_cross_entropy;
using ilme::ops::linear_cross_entropy_reference;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

struct Result {
  double sum;
  std::int64_t tokens;
  at::Tensor d_hidden, d_weight;
};

template <class Op>
Result run(Op&& op, const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels, at::ScalarType dtype,
           double scale = 1.0) {
  const at::Tensor x = leaf(hidden, dtype), w = leaf(weight, dtype);
  const auto loss = op(x, w, labels);
  (loss.sum * scale).backward();
  return {loss.sum.template item<double>(), loss.tokens, x.grad(), w.grad()};
}

at::Tensor labels_with_gaps(std::int64_t rows, std::int64_t vocabulary) {
  at::Tensor labels = at::arange(rows, at::kLong) * 7 % vocabulary;
  for (std::int64_t i = 0; i < rows; i += 3) labels[i] = ilme::ops::kIgnoreIndex;
  return labels;
}

/// Chunks of 16 rows, the smallest.
const auto small_chunks = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
  return linear_cross_entropy(x, w, y, {.chunk_bytes = 1});
};

/// The twin; `run` needs a callable of three.
const auto reference = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
  return linear_cross_entropy_reference(x, w, y);
};

/// Keeps the sum of what comes.
struct Receiver : ilme::ops::GradientReceiver {
  at::Tensor sum;
  explicit Receiver(at::Tensor p) : parameter(std::move(p)) {}
  void take(at::Tensor gradient) override {
    if (sum.defined()) {
      sum.add_(gradient);
    } else {
      sum = std::move(gradient);
    }
  }
  Accumulator accumulator() override {
    const bool empty = !sum.defined();
    if (empty) sum = at::empty(parameter.sizes(), parameter.options().dtype(at::kFloat).requires_grad(false));
    return {sum, empty};
  }
  void operator()(const torch::autograd::Variable&) override {}
  at::Tensor parameter;
};

/// Puts one at a parameter, which owns it.
Receiver& receive(const at::Tensor& parameter) {
  auto receiver = std::make_unique<Receiver>(parameter.detach());
  Receiver& there = *receiver;
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(receiver));
  return there;
}

}  // namespace

TEST_CASE("linear_cross_entropy equals its twin in fp64, fp32, bf16 and fp16, with every option") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 1e-5},
                                           std::pair{at::kBFloat16, 1e-2}, std::pair{at::kHalf, 2e-3});
  const std::int64_t rows = GENERATE(1, 15, 67);
  const CrossEntropyOptions options =
      GENERATE(CrossEntropyOptions{.chunk_bytes = 1}, CrossEntropyOptions{.chunk_bytes = 1, .label_smoothing = 0.1},
               CrossEntropyOptions{.chunk_bytes = 1, .z_loss = 1e-2, .soft_cap = 3.0});
  const bool gaps = GENERATE(true, false);
  CAPTURE(dtype, rows, gaps, options.label_smoothing, options.z_loss);
  // The twin computes with the same rounded values, in float64.
  const at::Tensor hidden = random({rows, 13}).to(dtype).to(at::kDouble),
                   weight = random({37, 13}, at::kDouble, 2).to(dtype).to(at::kDouble);
  const at::Tensor labels = gaps ? labels_with_gaps(rows, 37) : at::arange(rows, at::kLong) * 5 % 37;
  const Result expected =
      run([&](auto& x, auto& w, auto& y) { return linear_cross_entropy_reference(x, w, y, options); }, hidden, weight,
          labels, at::kDouble, 0.3);
  const Result got = run([&](auto& x, auto& w, auto& y) { return linear_cross_entropy(x, w, y, options); }, hidden,
                         weight, labels, dtype, 0.3);
  CHECK(got.tokens == expected.tokens);
  CHECK(got.sum == Catch::Approx(expected.sum).epsilon(tolerance).margin(tolerance));
  CHECK(relative_error(got.d_hidden, expected.d_hidden) <= tolerance);
  CHECK(relative_error(got.d_weight, expected.d_weight) <= tolerance);
}

TEST_CASE("linear_cross_entropy equals its twin with chunks large enough for blocked products") {
  const auto [dtype, tolerance] = GENERATE(std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 1e-2});
  const bool gaps = GENERATE(true, false);
  const at::Tensor hidden = random({301, 40}).to(dtype).to(at::kDouble),
                   weight = random({173, 40}, at::kDouble, 2).mul_(0.3).to(dtype).to(at::kDouble);
  const at::Tensor labels = gaps ? labels_with_gaps(301, 170) : at::arange(301, at::kLong) * 5 % 170;
  const CrossEntropyOptions options{.chunk_bytes = 160 * 170 * static_cast<std::int64_t>(at::elementSize(dtype)),
                                    .vocabulary_size = 170};
  const auto fused = [&](auto& x, auto& w, auto& y) { return linear_cross_entropy(x, w, y, options); };
  const auto plain = [&](auto& x, auto& w, auto& y) { return linear_cross_entropy_reference(x, w, y, options); };
  const Result expected = run(plain, hidden, weight, labels, at::kDouble),
               got = run(fused, hidden, weight, labels, dtype);
  CHECK(got.sum == Catch::Approx(expected.sum).epsilon(tolerance));
  CHECK(relative_error(got.d_hidden, expected.d_hidden) <= tolerance);
  CHECK(relative_error(got.d_weight, expected.d_weight) <= tolerance);
}

TEST_CASE("linear_cross_entropy agrees with finite differences") {
  const at::Tensor hidden = random({5, 4}), weight = random({6, 4}, at::kDouble, 2);
  const at::Tensor labels = labels_with_gaps(5, 6);
  const auto op = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
    return linear_cross_entropy(x, w, y, {.chunk_bytes = 1, .label_smoothing = 0.2, .z_loss = 0.05, .soft_cap = 4.0});
  };
  const Result got = run(op, hidden, weight, labels, at::kDouble);
  const auto value = [&](const at::Tensor& x, const at::Tensor& w) { return op(x, w, labels).sum.item<double>(); };
  const double h = 1e-6;
  for (std::int64_t i = 0; i < hidden.numel(); ++i) {
    at::Tensor up = hidden.clone(), down = hidden.clone();
    up.view(-1)[i] += h;
    down.view(-1)[i] -= h;
    REQUIRE(got.d_hidden.flatten()[i].item<double>() ==
            Catch::Approx((value(up, weight) - value(down, weight)) / (2 * h)).margin(1e-7));
  }
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    at::Tensor up = weight.clone(), down = weight.clone();
    up.view(-1)[i] += h;
    down.view(-1)[i] -= h;
    REQUIRE(got.d_weight.flatten()[i].item<double>() ==
            Catch::Approx((value(hidden, up) - value(hidden, down)) / (2 * h)).margin(1e-7));
  }
}

TEST_CASE("no counted label gives loss 0, zero gradients and zero tokens") {
  const at::Tensor labels = at::full({4}, ilme::ops::kIgnoreIndex, at::kLong);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const bool fused : {true, false}) {
      const at::Tensor hidden = random({4, 8}), weight = random({9, 8});
      const Result got =
          fused ? run(small_chunks, hidden, weight, labels, dtype) : run(reference, hidden, weight, labels, dtype);
      CHECK(got.sum == 0.0);
      CHECK(got.tokens == 0);
      CHECK(got.d_hidden.abs().max().item<double>() == 0.0);
      CHECK(got.d_weight.abs().max().item<double>() == 0.0);
    }
  }
  const Result empty = run(small_chunks, at::zeros({0, 8}), random({9, 8}), at::zeros({0}, at::kLong), at::kFloat);
  CHECK(empty.sum == 0.0);
  CHECK(empty.d_weight.abs().max().item<double>() == 0.0);
}

TEST_CASE("labels outside the vocabulary and shapes that do not fit are refused") {
  const at::Tensor hidden = random({2, 8}), weight = random({9, 8});
  CHECK_THROWS_AS(linear_cross_entropy(hidden, weight, at::tensor({1, 9}, at::kLong)), c10::IndexError);
  CHECK_THROWS_AS(linear_cross_entropy(hidden, weight, at::tensor({-1, 2}, at::kLong)), c10::IndexError);
  CHECK_THROWS_AS(linear_cross_entropy(hidden, random({9, 7}), at::tensor({1, 2}, at::kLong)), c10::ValueError);
  CHECK_THROWS_AS(linear_cross_entropy(hidden, weight, at::tensor({1, 2, 3}, at::kLong)), c10::ValueError);
}

TEST_CASE("rows past vocabulary_size take no part: padding") {
  const auto [dtype, tolerance] =
      GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 1e-5}, std::pair{at::kBFloat16, 1e-2});
  const at::Tensor hidden = random({19, 13}), labels = labels_with_gaps(19, 30);
  at::Tensor weight = random({37, 13}, at::kDouble, 2);
  weight.narrow(0, 30, 7).fill_(50.0);  // would take most of the softmax
  const auto fused = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
    return linear_cross_entropy(x, w, y, {.chunk_bytes = 1, .vocabulary_size = 30});
  };
  const auto plain = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
    return linear_cross_entropy_reference(x, w, y, {.vocabulary_size = 30});
  };
  const Result expected = run(reference, hidden, weight.narrow(0, 0, 30), labels, dtype, 0.3);
  for (const Result& got :
       {run(fused, hidden, weight, labels, dtype, 0.3), run(plain, hidden, weight, labels, dtype, 0.3)}) {
    CHECK(got.tokens == expected.tokens);
    CHECK(got.sum == Catch::Approx(expected.sum).epsilon(tolerance));
    CHECK(relative_error(got.d_hidden, expected.d_hidden) <= tolerance);
    CHECK(relative_error(got.d_weight.narrow(0, 0, 30), expected.d_weight) <= tolerance);
    CHECK(got.d_weight.narrow(0, 30, 7).abs().max().item<double>() == 0.0);
  }
  // A label that is padding, and more rows than there are, are refused.
  CHECK_THROWS_AS(fused(hidden, weight, labels + 31), c10::IndexError);
  CHECK_THROWS_AS(plain(hidden, weight, labels + 31), c10::IndexError);
  CHECK_THROWS_AS(linear_cross_entropy(hidden, weight, labels, {.vocabulary_size = 38}), c10::ValueError);
}

TEST_CASE("linear_cross_entropy with padded rows agrees with finite differences") {
  const at::Tensor hidden = random({5, 4}), weight = random({8, 4}, at::kDouble, 2), labels = labels_with_gaps(5, 6);
  const auto padded = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& y) {
    return linear_cross_entropy(x, w, y, {.chunk_bytes = 1, .vocabulary_size = 6});
  };
  const Result got = run(padded, hidden, weight, labels, at::kDouble);
  const double h = 1e-6;
  for (std::int64_t i = 0; i < weight.numel(); ++i) {
    at::Tensor up = weight.clone(), down = weight.clone();
    up.view(-1)[i] += h;
    down.view(-1)[i] -= h;
    const double slope =
        (padded(hidden, up, labels).sum.item<double>() - padded(hidden, down, labels).sum.item<double>()) / (2 * h);
    REQUIRE(got.d_weight.flatten()[i].item<double>() == Catch::Approx(slope).margin(1e-7));
  }
}

TEST_CASE("a frozen head gets no gradient and a receiver gets it in float32") {
  const at::Tensor labels = at::tensor({1, 5, 2}, at::kLong);
  const at::Tensor x = leaf(random({3, 8}), at::kBFloat16);
  at::Tensor w = random({9, 8}, at::kBFloat16, 2);
  linear_cross_entropy(x, w, labels).sum.backward();
  CHECK(x.grad().defined());
  CHECK_FALSE(w.grad().defined());

  w = leaf(w, at::kBFloat16);
  Receiver& receiver = receive(w);
  const auto loss = linear_cross_entropy(x, w, labels);
  loss.sum.backward();
  REQUIRE(receiver.sum.defined());
  CHECK(receiver.sum.scalar_type() == at::kFloat);
  CHECK_FALSE(w.grad().defined());
  const at::Tensor once = receiver.sum.clone();
  (linear_cross_entropy(x, w, labels).sum * 2).backward();
  CHECK(relative_error(receiver.sum, once * 3) <= 1e-6);
}

TEST_CASE("an upstream gradient of 1 moves the weight gradient to its receiver without a copy") {
  const at::Tensor x = leaf(random({3, 8}), at::kFloat), w = leaf(random({9, 8}, at::kDouble, 2), at::kFloat);
  Receiver& receiver = receive(w);
  linear_cross_entropy(x, w, at::tensor({1, 5, 2}, at::kLong)).sum.backward();
  CHECK(receiver.sum.use_count() == 1);
  CHECK(receiver.sum.storage().use_count() == 1);
}

TEST_CASE("micro-batches sum to one batch: case ce-accum-tokens") {
  const auto folder = ilme::test::shared_path("cases/ce-accum-tokens");
  if (!folder) SKIP("shared/cases/ce-accum-tokens is absent");
  struct Expected {
    double smoothing, sums[3], mean;
    const char* gradients;
  };
  const Expected expected =
      GENERATE(Expected{0.0, {17.836383556726542, 5.551515071114986, 0.0}, 2.923487328480191, "expected_grads"},
               Expected{0.1, {18.693922241866172, 5.285096199972154, 0.0}, 2.9973773052297905, "expected_grads_ls01"});
  const ilme::io::SafetensorsFile in(*folder / "in.safetensors"),
      out(*folder / (std::string(expected.gradients) + ".safetensors"));
  const at::Tensor rows = leaf(in.tensor("hidden"), at::kFloat), weight = leaf(in.tensor("weight"), at::kFloat);
  const at::Tensor targets = in.tensor("targets");
  double total = 0;
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto loss = linear_cross_entropy(rows.narrow(0, i * 8, 8), weight, targets.narrow(0, i * 8, 8),
                                           {.chunk_bytes = 1, .label_smoothing = expected.smoothing});
    CHECK(loss.sum.item<double>() == Catch::Approx(expected.sums[i]).epsilon(1e-5));
    loss.mean_over(8).backward();
    total += loss.sum.item<double>();
  }
  CHECK(total / 8 == Catch::Approx(expected.mean).epsilon(1e-5));
  CHECK(relative_error(weight.grad(), out.tensor("dweight")) <= 1e-5);
  CHECK(relative_error(rows.grad(), out.tensor("dhidden")) <= 1e-5);
}

TEST_CASE("the bf16 weight gradient does not depend on the chunk: case ce-bf16-dw") {
  const auto folder = ilme::test::shared_path("cases/ce-bf16-dw");
  if (!folder) SKIP("shared/cases/ce-bf16-dw is absent");
  const ilme::io::SafetensorsFile in(*folder / "in.safetensors"), out(*folder / "expected_grads.safetensors");
  const at::Tensor labels = in.tensor("targets"), hidden = in.tensor("hidden"), weight = in.tensor("weight");
  for (const std::int64_t rows : {16, 64, 512, 4096}) {
    const at::Tensor x = leaf(hidden, at::kBFloat16), w = leaf(weight, at::kBFloat16);
    Receiver& receiver = receive(w);
    const auto loss = linear_cross_entropy(x, w, labels, {.chunk_bytes = rows * weight.size(0) * 2});
    loss.mean().backward();
    CHECK(loss.mean().item<double>() == Catch::Approx(2.7938037884346825).margin(2e-3));
    CHECK(relative_error(receiver.sum, out.tensor("dweight")) <= 0.01);
  }
}

TEST_CASE("a batch of ignored labels adds nothing: case ce-all-ignored") {
  const auto folder = ilme::test::shared_path("cases/ce-all-ignored");
  if (!folder) SKIP("shared/cases/ce-all-ignored is absent");
  const ilme::io::SafetensorsFile in(*folder / "in.safetensors"), out(*folder / "expected_grads.safetensors");
  const at::Tensor x = leaf(in.tensor("hidden"), at::kFloat), w = leaf(in.tensor("weight"), at::kFloat);
  const auto none = linear_cross_entropy(x, w, in.tensor("targets_none"));
  none.mean().backward();
  CHECK(none.sum.item<double>() == 0.0);
  CHECK(none.mean().item<double>() == 0.0);
  CHECK(none.tokens == 0);
  CHECK(x.grad().eq(0).all().item<bool>());
  CHECK(w.grad().eq(0).all().item<bool>());
  const auto two = linear_cross_entropy(x, w, in.tensor("targets_two"));
  two.mean_over(none.tokens + two.tokens).backward();
  CHECK(two.tokens == 2);
  CHECK(two.sum.item<double>() == Catch::Approx(5.548031509023991).epsilon(1e-5));
  CHECK(relative_error(w.grad(), out.tensor("two_dweight_of_mean")) <= 1e-5);
  CHECK(relative_error(x.grad(), out.tensor("two_dhidden_of_mean")) <= 1e-5);
}

TEST_CASE("linear_cross_entropy takes hidden states and labels with strides, and returns log-probabilities") {
  const at::Tensor hidden = random({7, 6, 5}).transpose(0, 1), weight = random({11, 5}, at::kDouble, 2);
  const at::Tensor labels = (at::arange(84, at::kLong) % 11).view({6, 14}).slice(1, 0, 14, 2);
  labels[2][3] = ilme::ops::kIgnoreIndex;
  const CrossEntropyOptions options{.chunk_bytes = 1, .label_smoothing = 0.3, .token_log_probabilities = true};
  const auto got = linear_cross_entropy(hidden, weight, labels, options),
             expected = linear_cross_entropy_reference(hidden, weight, labels, options);
  CHECK(got.sum.item<double>() == Catch::Approx(expected.sum.item<double>()).epsilon(1e-10));
  CHECK(max_difference(got.token_log_probabilities, expected.token_log_probabilities) <= 1e-10);
  CHECK_FALSE(got.token_log_probabilities.requires_grad());
}

TEST_CASE("chunks share the rows evenly and stay within their bytes") {
  using ilme::ops::detail::chunk_rows;
  CHECK(chunk_rows(2048, 2 * 128256, 128256, std::int64_t{256} << 20) == 1024);
  CHECK(chunk_rows(1100, 2 * 128256, 128256, std::int64_t{256} << 20) == 560);
  CHECK(chunk_rows(4096, 4 * 262144, 262144, std::int64_t{256} << 20) == 256);
  CHECK(chunk_rows(5, 100, 50, 1) == 16);
  CHECK(chunk_rows(0, 100, 50, 1000) == 0);
}

TEST_CASE("more logits than an int32 can index: case ce-int32-index", "[.][slow]") {
  const std::int64_t tokens = 67108872;
  at::Tensor hidden = at::zeros({tokens, 1});
  hidden[tokens - 1] = 1.0;
  hidden.set_requires_grad(true);
  const at::Tensor weight = (at::arange(32, at::kFloat) * 0.25).unsqueeze(1);
  at::Tensor labels = at::full({tokens}, ilme::ops::kIgnoreIndex, at::kLong);
  labels[0] = 0;
  labels[33554436] = 0;
  labels[tokens - 1] = 31;
  const auto loss = linear_cross_entropy(hidden, weight, labels);
  loss.mean().backward();
  CHECK(loss.sum.item<double>() / 3 == Catch::Approx(2.813275945379136).epsilon(1e-5));
  CHECK(hidden.grad()[tokens - 1].item<double>() == Catch::Approx(-0.29250610481340633).epsilon(1e-4));
  CHECK(hidden.grad()[0].item<double>() == Catch::Approx(1.2916666666666667).epsilon(1e-4));
  CHECK(hidden.grad()[33554436].item<double>() == Catch::Approx(1.2916666666666667).epsilon(1e-4));
  CHECK(hidden.grad()[1].item<double>() == 0.0);
}
