/// Choosing the next token: what Transformers' logits processors and warpers do, in their order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/random.hpp>

namespace ilme::generate {

struct SamplingOptions {
  double temperature = 0.0;         ///< 0: always the most likely token, and top_k, top_p and min_p do not matter
  std::int64_t top_k = 0;           ///< keep so many of the likeliest tokens, and those as likely as the last; 0: all
  double top_p = 1.0;               ///< nucleus (Holtzman et al. 2019): least set of tokens with this much probability
  double min_p = 0.0;               ///< drop tokens less likely than min_p times the likeliest (Nguyen et al. 2024)
  double repetition_penalty = 1.0;  ///< over 1: logits of ids that have occurred are lowered (Keskar et al. 2019)
  std::uint64_t seed = 0;           ///< the same seed gives the same text

  void validate() const {
    const auto check = [](bool good, const char* name, auto value, const char* expected) {
      if (!good) throw InputError(name, " is ", value, ", expected ", expected);
    };
    check(temperature >= 0 && std::isfinite(temperature), "temperature", temperature, "0 or more");
    check(top_k >= 0, "top-k", top_k, "0 (all tokens) or more");
    check(top_p > 0 && top_p <= 1, "top-p", top_p, "0 < top-p <= 1");
    check(min_p >= 0 && min_p <= 1, "min-p", min_p, "0 <= min-p <= 1");
    check(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition-penalty", repetition_penalty,
          "more than 0");
  }
};

/// Divides the logits of ids that occur in `seen` by `penalty` where they are positive, and multiplies them otherwise;
/// each id once. Ids beyond the logits are passed over.
inline void penalize_repetition(std::span<float> logits, std::vector<std::int64_t> seen, double penalty) {
  if (penalty == 1.0) return;
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const std::int64_t id : seen) {
    if (id < 0 || id >= static_cast<std::int64_t>(logits.size())) continue;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * static_cast<float>(penalty) : logit / static_cast<float>(penalty);
  }
}

/// Makes the ids impossible. Ids beyond the logits are passed over.
inline void suppress(std::span<float> logits, std::span<const std::int64_t> ids) {
  for (const std::int64_t id : ids) {
    if (id >= 0 && id < static_cast<std::int64_t>(logits.size())) {
      logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
    }
  }
}

struct Candidate {
  std::int64_t id;
  double weight;  ///< proportional to the probability; the likeliest has 1
};

/// The tokens that may be drawn at a temperature above 0: temperature, then top_k, top_p, min_p, each on what the one
/// before has left. By falling weight when top_p is below 1 (ties: lowest id first), else by id. `logits` holds a
/// finite number.
inline std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<float> scaled(logits.begin(), logits.end());
  for (float& logit : scaled) logit /= static_cast<float>(options.temperature);
  const float largest = *std::max_element(scaled.begin(), scaled.end());
  float least = -std::numeric_limits<float>::max();
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(scaled.size())) {
    std::vector<float> order = scaled;
    const auto kth = order.begin() + static_cast<std::ptrdiff_t>(options.top_k - 1);
    std::nth_element(order.begin(), kth, order.end(), std::greater<>());
    least = std::max(least, *kth);
  }
  std::vector<Candidate> kept;
  double total = 0;
  for (std::size_t id = 0; id < scaled.size(); ++id) {
    if (!(scaled[id] >= least)) continue;
    kept.push_back({static_cast<std::int64_t>(id), std::exp(static_cast<double>(scaled[id]) - largest)});
    total += kept.back().weight;
  }
  if (options.top_p < 1) {
    // A token with less than (1 - top_p) / count of the mass lies beyond the nucleus: it and all that are less likely
    // have less than 1 - top_p together. What is left to sort is short.
    const double beyond = (1 - options.top_p) * total / static_cast<double>(kept.size());
    std::erase_if(kept, [&](const Candidate& candidate) { return candidate.weight < beyond; });
    std::stable_sort(kept.begin(), kept.end(),
                     [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
    double before = 0;
    std::size_t count = 0;
    while (count < kept.size() && before < options.top_p * total) before += kept[count++].weight;
    kept.resize(count);
  }
  if (options.min_p > 0) {
    std::erase_if(kept, [&](const Candidate& candidate) { return candidate.weight < options.min_p; });
  }
  return kept;
}

/// The next id after `seen` (prompt and text so far) for `logits`, which are changed; draw number `step` of the seed.
/// Penalty for repetition and suppressed ids come first, as in Transformers. Ties at temperature 0 go to the lowest id.
/// Throws RunError when no logit is a finite number.
inline std::int64_t sample(std::span<float> logits, const std::vector<std::int64_t>& seen,
                           std::span<const std::int64_t> suppressed, const SamplingOptions& options,
                           std::uint64_t step) {
  penalize_repetition(logits, seen, options.repetition_penalty);
  suppress(logits, suppressed);
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (largest == logits.end() || !std::isfinite(*largest)) {
    throw RunError("no logit of the next token is a finite number: are the model's weights sound?");
  }
  if (options.temperature == 0) return largest - logits.begin();
  const std::vector<Candidate> kept = candidates(logits, options);
  double total = 0;
  for (const Candidate& candidate : kept) total += candidate.weight;
  double left = random_uniform(options.seed, step) * total;
  for (const Candidate& candidate : kept) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  return kept.back().id;
}

}  // namespace ilme::generate
