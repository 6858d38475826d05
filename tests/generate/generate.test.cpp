#include "support/tiny_llama.hpp"

#include <ilme/core/error.hpp>
#include <ilme/generate/generate.hpp>

using namespace ilme;

TEST_CASE("greedy generation with a cache equals full passes, and stops at a stop id") {
  nn::Llama<ops::Fused> model(test::tiny_config());
  test::fill_by_formula(model);
  const std::vector<std::int64_t> prompt{3, 1, 4};
  std::vector<std::int64_t> expected, all = prompt;
  for (int i = 0; i < 8; ++i) {
    const at::NoGradGuard no_gradient;
    const at::Tensor logits = at::matmul(model.hidden(test::batch_of({all})), model.lm_head_weight().t());
    expected.push_back(logits[0][-1].argmax().item<std::int64_t>());
    all.push_back(expected.back());
  }
  const auto result = generate::generate(model, prompt, {.max_tokens = 8});
  CHECK(result.ids == expected);
  CHECK_FALSE(result.stopped);
  const auto stopped = generate::generate(model, prompt, {.max_tokens = 8, .stop_ids = {expected[0]}});
  CHECK(stopped.stopped);
  CHECK(stopped.ids.empty());
  CHECK(
      generate::generate(model, prompt, {.max_tokens = 8, .on_token = [](std::int64_t) { return false; }}).ids.size() ==
      1);
  CHECK_THROWS_AS(generate::generate(model, std::vector<std::int64_t>{}, {}), InputError);
}

TEST_CASE("sampling follows the distribution, the nucleus and the seed") {
  const at::Tensor logits = at::tensor({0.5, 0.3, 0.15, 0.05}).log();
  std::vector<double> counts(4, 0);
  for (std::uint64_t i = 0; i < 4000; ++i)
    counts[static_cast<std::size_t>(generate::sample(logits, {.temperature = 1.0, .seed = 3}, i))] += 1;
  CHECK(counts[0] / 4000 == Catch::Approx(0.5).margin(0.03));
  CHECK(counts[3] / 4000 == Catch::Approx(0.05).margin(0.02));
  for (std::uint64_t i = 0; i < 500; ++i) {
    REQUIRE(generate::sample(logits, {.temperature = 1.0, .top_p = 0.6, .seed = 3}, i) < 2);
    REQUIRE(generate::sample(logits, {.temperature = 1.0, .top_p = 0.4, .seed = 3}, i) == 0);
  }
  CHECK(generate::sample(logits, {.temperature = 1.0, .seed = 3}, 7) ==
        generate::sample(logits, {.temperature = 1.0, .seed = 3}, 7));
  CHECK_THROWS_AS((generate::SamplingOptions{.temperature = -1.0}.validate()), InputError);
  CHECK_THROWS_AS((generate::SamplingOptions{.temperature = 1.0, .top_p = 0.0}.validate()), InputError);
}
