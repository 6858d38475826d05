#include "support/catch_torch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ilme/generate/sampling.hpp>

using namespace ilme;
using generate::SamplingOptions;

namespace {

std::vector<float> twelve_logits() {
  std::vector<float> logits;
  for (int i = 0; i < 12; ++i) logits.push_back(static_cast<float>(3 * std::sin(1.7 * i)));
  logits[7] = logits[2];
  return logits;
}

/// The distribution that sample() draws from, over all ids.
std::vector<double> distribution(std::vector<float> logits, const std::vector<std::int64_t>& seen,
                                 const std::vector<std::int64_t>& suppressed, const SamplingOptions& options) {
  generate::penalize_repetition(logits, seen, options.repetition_penalty);
  generate::suppress(logits, suppressed);
  std::vector<double> probabilities(logits.size(), 0.0);
  double total = 0;
  for (const auto& candidate : generate::candidates(logits, options)) {
    probabilities[static_cast<std::size_t>(candidate.id)] = candidate.weight;
    total += candidate.weight;
  }
  for (double& probability : probabilities) probability /= total;
  return probabilities;
}

}  // namespace

TEST_CASE("distributions equal those of Transformers' logits processors") {
  struct Case {
    const char* name;
    SamplingOptions options;  // temperature, top_k, top_p, min_p, repetition_penalty
    std::vector<std::int64_t> suppressed;
    std::vector<double> expected;  // by tests/references/sampling_reference.py
  };
  const std::vector<Case> cases = {
      {"temperature",
       {0.7, 0, 1.0, 0.0, 1.0},
       {},
       {0.006388232, 0.447846, 0.00213674, 0.0001208361, 0.05309519, 0.1956926, 0.0003182221, 0.00213674, 0.2538084,
        0.03497992, 0.0001037452, 0.003373295}},
      {"top-k", {1.0, 4, 1.0, 0.0, 1.0}, {}, {0, 0.4070125, 0, 0, 0.09148633, 0.2279921, 0, 0, 0.2735091, 0, 0, 0}},
      {"top-k tie",
       {1.0, 6, 1.0, 0.0, 1.0},
       {},
       {0.01907748, 0.3737186, 0, 0, 0.08400269, 0.2093422, 0, 0, 0.2511359, 0.06272314, 0, 0}},
      {"top-p", {1.3, 0, 0.8, 0.0, 1.0}, {}, {0, 0.3711849, 0, 0, 0.117743, 0.2376753, 0, 0, 0.2733968, 0, 0, 0}},
      {"min-p",
       {1.5, 0, 1.0, 0.2, 1.0},
       {},
       {0, 0.3204426, 0, 0, 0.118463, 0.2177501, 0, 0, 0.2458441, 0.09750023, 0, 0}},
      {"penalty",
       {1.0, 0, 1.0, 0.0, 1.3},
       {},
       {0.0235671, 0.232365, 0.01094879, 0.001465809, 0.07370816, 0.258608, 0.002887029, 0.01094879, 0.3102373,
        0.05887445, 0.001317399, 0.01507224}},
      {"all", {0.9, 7, 0.9, 0.1, 1.2}, {1, 11}, {0, 0, 0, 0, 0.1016724, 0.3690169, 0, 0, 0.4517333, 0.07757738, 0, 0}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto probabilities = distribution(twelve_logits(), {1, 4, 1, 9}, c.suppressed, c.options);
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
      CHECK(probabilities[i] == Catch::Approx(c.expected[i]).epsilon(1e-5).margin(1e-9));
    }
  }
}

TEST_CASE("draws follow the distribution and the seed") {
  std::vector<float> logits;
  for (const double p : {0.5, 0.3, 0.15, 0.05}) logits.push_back(static_cast<float>(std::log(p)));
  const auto draw = [&](const SamplingOptions& options, std::uint64_t step) {
    std::vector<float> copy = logits;
    return generate::sample(copy, {}, {}, options, step);
  };
  std::vector<double> counts(4, 0);
  for (std::uint64_t i = 0; i < 4000; ++i) {
    counts[static_cast<std::size_t>(draw({.temperature = 1.0, .seed = 3}, i))] += 1;
  }
  CHECK(counts[0] / 4000 == Catch::Approx(0.5).margin(0.03));
  CHECK(counts[3] / 4000 == Catch::Approx(0.05).margin(0.02));
  for (std::uint64_t i = 0; i < 500; ++i) {
    REQUIRE(draw({.temperature = 1.0, .top_p = 0.6, .seed = 3}, i) < 2);
    REQUIRE(draw({.temperature = 1.0, .top_p = 0.4, .seed = 3}, i) == 0);
    REQUIRE(draw({.temperature = 1.0, .top_k = 3, .seed = 3}, i) < 3);
    REQUIRE(draw({.temperature = 1.0, .min_p = 0.5, .seed = 3}, i) < 2);
  }
  CHECK(draw({.temperature = 1.0, .seed = 3}, 7) == draw({.temperature = 1.0, .seed = 3}, 7));
}

TEST_CASE(
    "suppressed ids are not drawn, a penalty changes the likeliest, and logits that are no numbers are an error") {
  std::vector<float> logits = {1.0f, 3.0f, 2.9f, -1.0f};
  CHECK(generate::sample(logits, {}, std::vector<std::int64_t>{1, 99}, {}, 0) == 2);
  logits = {1.0f, 3.0f, 2.9f, -1.0f};
  CHECK(generate::sample(logits, {1, 3, 50}, {}, {.repetition_penalty = 1.5}, 0) == 2);
  CHECK(logits[1] == Catch::Approx(2.0));
  CHECK(logits[3] == Catch::Approx(-1.5));
  std::vector<float> bad(4, std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(generate::sample(bad, {}, {}, {.temperature = 1.0}, 0), RunError);
}

TEST_CASE("options out of their range are named") {
  const auto message = [](const SamplingOptions& options) {
    try {
      options.validate();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(message({.temperature = -1.0}), ContainsSubstring("temperature is -1"));
  CHECK_THAT(message({.top_k = -2}), ContainsSubstring("top-k is -2"));
  CHECK_THAT(message({.top_p = 0.0}), ContainsSubstring("top-p is 0"));
  CHECK_THAT(message({.min_p = 1.5}), ContainsSubstring("min-p is 1.5"));
  CHECK_THAT(message({.repetition_penalty = 0.0}), ContainsSubstring("repetition-penalty is 0"));
  CHECK(message({}).empty());
}
