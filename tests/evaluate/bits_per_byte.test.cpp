#include "support/tiny_llama.hpp"

#include <ilme/core/error.hpp>
#include <ilme/evaluate/bits_per_byte.hpp>
#include <ilme/evaluate/likelihood.hpp>
#include <ilme/ops/token_losses.hpp>

using namespace ilme;

namespace {

nn::Llama<ops::Fused> tiny() {
  nn::Llama<ops::Fused> model(test::tiny_config());
  test::fill_by_formula(model);
  return model;
}

/// -log p of ids[from..] given the ids before them in ids[begin..], one forward pass over full logits.
double plain(nn::Llama<ops::Fused>& model, const std::vector<std::int64_t>& ids, std::size_t begin, std::size_t from) {
  const at::NoGradGuard no_gradient;
  const std::vector<std::int64_t> seen(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
  const at::Tensor logits = at::matmul(model.hidden(test::batch_of({seen})), model.lm_head_weight().t())[0];
  const at::Tensor log_p = logits.log_softmax(-1);
  double sum = 0;
  for (std::size_t i = from; i < ids.size(); ++i) {
    sum -= log_p[static_cast<std::int64_t>(i - begin - 1)][ids[i]].item<double>();
  }
  return sum;
}

}  // namespace

TEST_CASE("bits per byte equal the plain computation, documents packed together or not") {
  auto model = tiny();
  const std::vector<std::vector<std::int64_t>> documents{{0, 5, 9, 11, 20, 2}, {0, 17, 4}, {0}, {0, 7, 7, 7, 12, 2}};
  double expected = 0;
  for (const auto& ids : documents) expected += ids.size() > 1 ? plain(model, ids, 0, 1) : 0.0;
  for (const std::int64_t at_once : {4, 8, 4096}) {
    evaluate::TextScorer scorer(model, {.window = 64, .stride = 32, .tokens_at_once = at_once});
    for (const auto& ids : documents) scorer.add(ids, 10);
    const auto score = scorer.finish();
    CHECK(score.tokens == 12);
    CHECK(score.documents == 4);
    CHECK(score.negative_log_likelihood == Catch::Approx(expected).epsilon(1e-5));
    CHECK(score.bits_per_byte() == Catch::Approx(expected / std::log(2.0) / 40).epsilon(1e-5));
    REQUIRE(scorer.documents().size() == 4);
    CHECK(scorer.documents()[1].negative_log_likelihood ==
          Catch::Approx(plain(model, documents[1], 0, 1)).epsilon(1e-5));
    CHECK(scorer.documents()[1].tokens == 2);
    CHECK(scorer.documents()[2].tokens == 0);
  }
}

TEST_CASE("windows slide by the stride and score every token once") {
  auto model = tiny();
  const std::vector<std::int64_t> ids{0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9};
  const std::size_t window = 6, stride = 2;
  double expected = 0;
  std::size_t scored = 1;
  for (std::size_t end = window; scored < ids.size(); end += stride) {
    const std::size_t last = std::min(end, ids.size() - 1);
    const std::vector<std::int64_t> part(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    expected += plain(model, part, end - window, scored);
    scored = last + 1;
  }
  evaluate::TextScorer scorer(model, {.window = 6, .stride = 2});
  scorer.add(ids, 20);
  const auto score = scorer.finish();
  CHECK(score.tokens == 13);
  CHECK(score.negative_log_likelihood == Catch::Approx(expected).epsilon(1e-5));
}

TEST_CASE("no text and impossible windows are refused") {
  auto model = tiny();
  CHECK_THROWS_AS(evaluate::TextScorer(model, {.window = 4, .stride = 4}), InputError);
  CHECK_THROWS_AS(evaluate::TextScorer(model, {}).finish(), InputError);
}

TEST_CASE("token losses equal the plain cross-entropy, in chunks too, ignored rows being 0") {
  const at::Tensor hidden = at::randn({3, 40, 16}), weight = at::randn({23, 16});
  at::Tensor labels = at::randint(0, 23, {3, 40}, at::kLong);
  labels.select(1, 7).fill_(ops::kIgnoreIndex);
  const at::Tensor logits = at::matmul(hidden, weight.t()).view({-1, 23});
  const at::Tensor expected =
      at::cross_entropy_loss(logits, labels.flatten(), {}, at::Reduction::None, ops::kIgnoreIndex);
  for (const std::int64_t chunk_bytes : {1, 1 << 20}) {
    CHECK(ops::token_losses(hidden, weight, labels, 0, chunk_bytes).allclose(expected, 1e-5, 1e-5));
  }
  labels[0][0] = 23;
  CHECK_THROWS_AS(ops::token_losses(hidden, weight, labels), c10::IndexError);
}

TEST_CASE("sums by slot are those of each sequence by itself, however they are packed") {
  nn::Llama<ops::Fused> model(test::tiny_config());
  test::fill_by_formula(model);
  const at::NoGradGuard no_gradient;
  const std::vector<std::vector<std::int64_t>> sequences{{0, 5, 9, 11, 20, 2}, {0, 17, 4}, {0}, {0, 7, 7, 7, 12, 2}};
  const std::vector<std::int64_t> first{3, 1, 1, 5};
  std::vector<double> expected(4);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const at::Tensor logits =
        at::matmul(model.hidden(test::batch_of({sequences[s]})), model.lm_head_weight().t())[0].log_softmax(-1);
    for (std::size_t i = static_cast<std::size_t>(first[s]); i < sequences[s].size(); ++i) {
      expected[s] -= logits[static_cast<std::int64_t>(i) - 1][sequences[s][i]].item<double>();
    }
  }
  for (const std::int64_t at_once : {1, 8, 100}) {
    evaluate::LikelihoodScorer scorer(model, at_once);
    for (std::size_t s = 0; s < sequences.size(); ++s) scorer.add(sequences[s], first[s], s);
    scorer.flush();
    REQUIRE(scorer.sums().size() == 4);
    for (std::size_t s = 0; s < 4; ++s) CHECK(scorer.sums()[s] == Catch::Approx(expected[s]).epsilon(1e-5));
  }
}

TEST_CASE("rows that pad the vocabulary take no part in the softmax") {
  auto config = test::tiny_config();
  nn::Llama<ops::Fused> model(config);
  test::fill_by_formula(model);
  config.suppress_tokens = {19, 21, 22};  // 21 and 22 are the run at the end; 19 is a token like any other
  nn::Llama<ops::Fused> padded(config);
  test::fill_by_formula(padded);
  const std::vector<std::int64_t> ids{0, 19, 4};
  const at::NoGradGuard no_gradient;
  const at::Tensor logits = at::matmul(model.hidden(test::batch_of({ids})), model.lm_head_weight().t())[0];
  const double expected =
      -(logits[0].narrow(0, 0, 21).log_softmax(0)[19] + logits[1].narrow(0, 0, 21).log_softmax(0)[4]).item<double>();
  evaluate::LikelihoodScorer scorer(padded, 100);
  scorer.add(ids, 1, 0);
  scorer.flush();
  CHECK(scorer.sums()[0] == Catch::Approx(expected).epsilon(1e-5));
}

TEST_CASE("scores equal those of Transformers (tests/references/llama_reference.py)") {
  auto model = tiny();
  evaluate::TextScorer scorer(model, {});
  for (const auto& ids : {std::vector<std::int64_t>{0, 5, 9, 11, 20, 2}, {0, 17, 4}, {0, 7, 7, 7, 12, 2}}) {
    scorer.add(ids, 10);
  }
  scorer.finish();
  const double expected[] = {17.56298, 7.52829, 19.39322};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(scorer.documents()[i].negative_log_likelihood == Catch::Approx(expected[i]).epsilon(1e-5));
  }
  evaluate::TextScorer sliding(model, {.window = 6, .stride = 2});
  sliding.add(std::vector<std::int64_t>{0, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9}, 20);
  CHECK(sliding.finish().negative_log_likelihood == Catch::Approx(50.41714).epsilon(1e-5));
}
