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

TEST_CASE("a batch gives each prompt what it gets alone, whatever the lengths, options and ends") {
  nn::Llama<ops::Fused> model(test::tiny_config());
  test::fill_by_formula(model);
  const std::vector<std::vector<std::int64_t>> prompts{{3, 1, 4}, {5}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8}, {9, 9}};
  std::vector<generate::GenerateOptions> options(4);
  for (std::size_t i = 0; i < 4; ++i) options[i].max_tokens = static_cast<std::int64_t>(9 - 2 * i);
  options[1].sampling = {.temperature = 1.0, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 5};
  options[3].sampling = {.temperature = 2.0, .top_k = 9, .min_p = 0.01, .seed = 6};
  options[2].stop_ids = {generate::generate(model, prompts[2], options[2]).ids[2]};
  generate::Generator generator(model);
  for (std::size_t i = 0; i < 4; ++i) CHECK(generator.add(prompts[i], options[i]) == i);
  while (generator.step()) {
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const auto alone = generate::generate(model, prompts[i], options[i]);
    CHECK(generator.result(i).ids == alone.ids);
    CHECK(generator.result(i).stopped == alone.stopped);
  }
  CHECK(generator.result(2).stopped);
  // One may join while others are under way.
  const std::size_t late = generator.add(prompts[0], options[0]);
  while (generator.step()) {
  }
  CHECK(generator.result(late).ids == generator.result(0).ids);
}

TEST_CASE("suppressed ids are never generated and padding rows have no logits") {
  nn::LlamaConfig config = test::tiny_config();
  nn::Llama<ops::Fused> plain(config);
  test::fill_by_formula(plain);
  const std::vector<std::int64_t> prompt{3, 1, 4};
  const auto before = generate::generate(plain, prompt, {.max_tokens = 4});
  config.suppress_tokens = {before.ids[0], 21, 22};
  nn::Llama<ops::Fused> model(config);
  test::fill_by_formula(model);
  for (const double temperature : {0.0, 3.0}) {
    for (const std::int64_t id :
         generate::generate(model, prompt, {.sampling = {.temperature = temperature}, .max_tokens = 40}).ids) {
      CHECK(id != before.ids[0]);
      CHECK(id < 21);
    }
  }
}

TEST_CASE("what generation cannot do is an error that says so") {
  nn::Llama<ops::Fused> model(test::tiny_config());
  test::fill_by_formula(model);
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  const auto error = [](auto text) { return MessageMatches(ContainsSubstring(text)); };
  const std::vector<std::int64_t> prompt{3, 1, 4}, full(64, 2), foreign{3, 23};
  CHECK_THROWS_MATCHES(generate::generate(model, full, {}), InputError, error("64 tokens, but the context holds 64"));
  CHECK_THROWS_MATCHES(generate::generate(model, prompt, {.context_length = 3}), InputError, error("context-length"));
  CHECK_THROWS_MATCHES(generate::generate(model, foreign, {}), InputError, error("id 23"));
  CHECK_THROWS_MATCHES(generate::generate(model, prompt, {.max_tokens = -1}), InputError, error("max-tokens is -1"));
  CHECK_THROWS_MATCHES(generate::generate(model, prompt, {.sampling = {.top_p = 2.0}}), InputError,
                       error("top-p is 2"));
  CHECK(generate::generate(model, prompt, {.max_tokens = 0}).ids.empty());
  // The text ends where the context does.
  CHECK(generate::generate(model, prompt, {.max_tokens = 100, .context_length = 10}).ids.size() == 7);
}
