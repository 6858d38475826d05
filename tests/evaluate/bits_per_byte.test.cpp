#include "support/tiny_llama.hpp"

#include <ilme/core/error.hpp>
#include <ilme/evaluate/bits_per_byte.hpp>

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
