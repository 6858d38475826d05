#include "support/catch_torch.hpp"

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "support/gradients.hpp"

#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/loss/preference.hpp>

using namespace ilme::loss;
using ilme::test::leaf;
using ilme::test::max_difference;
using ilme::test::random;
using ilme::test::relative_error;

namespace {

at::Tensor doubles(at::ArrayRef<double> values) { return at::tensor(values, at::kDouble); }

/// The sequences of tests/references/preference_reference.py.
const auto tokens = doubles({5, 4, 6, 3}), reference = doubles({-13.0, -7.0, -14.0, -7.5});
const auto desirable = at::tensor({1, 1, 0, 0}, at::kLong).to(at::kBool);

using OfSequences = std::function<PreferenceLoss(const SequenceLogProbabilities&)>;

struct Reference {
  OfSequences loss;
  double value;
  std::vector<double> gradient;
};

/// Two sequences a half, with prompts and padding that do not count, and one without any counted label.
struct Batch {
  at::Tensor hidden = random({6, 9, 8}), weight = random({31, 8}, at::kDouble, 2),
             labels = at::arange(54, at::kLong).view({6, 9}) * 5 % 29;
  at::Tensor reference = random({6}, at::kDouble, 3).abs() * -20;
  Batch() {
    labels.slice(1, 0, 2).fill_(-100);
    labels[1].slice(0, 6, 9).fill_(-100);
    labels[4].fill_(-100);
  }
};

}  // namespace

TEST_CASE("preference losses have the values and gradients of the papers' formulas") {
  const Reference expected = GENERATE(
      Reference{[](auto& p) { return Dpo{}(p, reference); },
                1.378556083107,
                {-0.046257015466, -0.053120937337, 0.046257015466, 0.053120937337}},
      Reference{[](auto& p) { return Dpo{.beta = 0.5, .label_smoothing = 0.2}(p, reference); },
                1.465571684391,
                {-0.060410650412, -0.225677432333, 0.060410650412, 0.225677432333}},
      Reference{[](auto& p) { return Dpo{.form = Dpo::Form::ipo}(p, reference); },
                51.519461805556,
                {-1.893333333333, -2.697916666667, 1.577777777778, 3.597222222222}},
      Reference{[](auto& p) { return Orpo{.beta = 0.25}(p); },
                4.612968344068,
                {-0.227235637246, -0.279783155177, 0.022696364372, 0.037527340398}},
      Reference{[](auto& p) { return SimPo{.margin = 0.5}(p); },
                1.568473062128,
                {-0.248983732481, -0.224052116366, 0.207486443734, 0.298736155155}},
      Reference{[](auto& p) {
                  return Kto{.undesirable_weight = 1.5}(p, desirable, reference, at::scalar_tensor(0.3, at::kDouble));
                },
                2.486304528481,
                {-0.024997500167, -0.024981103278, 0.037342007700, 0.037454099990}});
  const at::Tensor sums = leaf(doubles({-12.5, -7.25, -15.0, -6.5}), at::kDouble);
  const PreferenceLoss loss = expected.loss({sums, tokens});
  loss.sum.backward();
  CHECK(loss.sum.item<double>() == Catch::Approx(expected.value).epsilon(1e-10));
  CHECK(max_difference(sums.grad(), doubles(expected.gradient)) <= 1e-10);
}

TEST_CASE("preference losses report rewards, accuracy and margin") {
  const SequenceLogProbabilities policy{doubles({-12.5, -7.25, -15.0, -6.5}), tokens};
  const PreferenceLoss dpo = Dpo{.beta = 0.5}(policy, reference);
  CHECK(dpo.tokens == 2);
  CHECK(max_difference(dpo.chosen_rewards, doubles({0.25, -0.125})) <= 1e-12);
  CHECK(max_difference(dpo.rejected_rewards, doubles({-0.5, 0.5})) <= 1e-12);
  CHECK(dpo.accuracy().item<double>() == 0.5);
  CHECK(dpo.margin().item<double>() == Catch::Approx(0.0625));
  const PreferenceLoss kto = Kto{.beta = 0.5}(policy, at::tensor({1, 0, 1, 1}, at::kLong).to(at::kBool), reference,
                                              at::zeros({}, at::kDouble));
  CHECK(kto.tokens == 4);
  CHECK(max_difference(kto.chosen_rewards, doubles({0.25, -0.5, 0.5})) <= 1e-12);
  CHECK(max_difference(kto.rejected_rewards, doubles({-0.125})) <= 1e-12);
  CHECK(Kto::baseline(doubles({-3, -4}), doubles({-4, -4.5})).item<double>() == Catch::Approx(0.75));
  CHECK(Kto::baseline(doubles({-5, -4}), doubles({-4, -4.5})).item<double>() == 0.0);
}

TEST_CASE("fused preference losses equal their twins over full logits") {
  const Batch batch;
  const auto [dtype, tolerance] =
      GENERATE(std::pair{at::kDouble, 1e-10}, std::pair{at::kFloat, 2e-5}, std::pair{at::kBFloat16, 3e-2});
  const ilme::ops::CrossEntropyOptions options{.chunk_bytes = 1, .vocabulary_size = 29};
  const at::Tensor is_desirable = at::tensor({1, 0, 1, 1, 0, 0}, at::kLong).to(at::kBool);
  const OfSequences loss = GENERATE_COPY(
      OfSequences([&](auto& p) { return Dpo{}(p, batch.reference.to(p.sums.scalar_type())); }),
      OfSequences([](auto& p) { return Orpo{}(p); }), OfSequences([](auto& p) { return SimPo{}(p); }),
      OfSequences([&](auto& p) {
        return Kto{}(p, is_desirable, batch.reference.to(p.sums.scalar_type()), at::zeros({}, p.sums.options()));
      }));
  const auto run = [&](auto of, at::ScalarType type) {
    const at::Tensor x = leaf(batch.hidden.to(dtype), type), w = leaf(batch.weight.to(dtype), type);
    const PreferenceLoss result = loss(of(x, w, batch.labels, options));
    result.sum.backward();
    CHECK(x.grad()[4].eq(0).all().template item<bool>());
    return std::tuple{result.sum.detach(), x.grad(), w.grad()};
  };
  const auto [sum, dx, dw] = run(sequence_log_probabilities, dtype);
  const auto [expected, expected_dx, expected_dw] = run(sequence_log_probabilities_reference, at::kDouble);
  CHECK(relative_error(sum, expected) <= tolerance);
  CHECK(relative_error(dx, expected_dx) <= tolerance);
  CHECK(relative_error(dw, expected_dw) <= tolerance);
}

TEST_CASE("losses without a reference model fit where a trainer takes a loss") {
  static_assert(LossModule<Orpo> && LossModule<SimPo>);
  static_assert(!LossModule<Dpo> && !LossModule<Kto>);
}

TEST_CASE("preference modules take hidden states, and refuse shapes that do not fit") {
  const Batch batch;
  const at::Tensor &x = batch.hidden, &w = batch.weight, &y = batch.labels;
  const auto policy = sequence_log_probabilities_reference(x, w, y);
  const at::Tensor some = at::tensor({1, 0, 1, 1, 0, 0}, at::kLong).to(at::kBool), zero = at::zeros({}, at::kDouble);
  CHECK(max_difference(Dpo{}(x, w, y, batch.reference).sum, Dpo{}(policy, batch.reference).sum) <= 1e-10);
  CHECK(max_difference(Orpo{}(x, w, y).sum, Orpo{}(policy).sum) <= 1e-10);
  CHECK(max_difference(SimPo{}(x, w, y).sum, SimPo{}(policy).sum) <= 1e-10);
  CHECK(max_difference(Kto{}(x, w, y, some, batch.reference, zero).sum,
                       Kto{}(policy, some, batch.reference, zero).sum) <= 1e-10);
  CHECK_THROWS_AS(Dpo{}(x.narrow(0, 0, 5), w, y.narrow(0, 0, 5), batch.reference.narrow(0, 0, 5)), c10::ValueError);
  CHECK_THROWS_AS(Dpo{}(x, w, y, batch.reference.narrow(0, 0, 5)), c10::ValueError);
  CHECK_THROWS_AS(SimPo{}(x, w, y.flatten()), c10::ValueError);
  CHECK_THROWS_AS(Kto{}(x, w, y, some.to(at::kLong), batch.reference, zero), c10::ValueError);
}
