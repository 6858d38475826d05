/// Choosing the next token.
#pragma once

#include <cstdint>

#include <ATen/ATen.h>

#include <ilme/core/error.hpp>
#include <ilme/core/random.hpp>

namespace ilme::generate {

struct SamplingOptions {
  double temperature = 0.0;  ///< 0: always the most likely token
  double top_p = 1.0;      ///< nucleus sampling (Holtzman et al. 2019): least set of tokens with this much probability
  std::uint64_t seed = 0;  ///< the same seed gives the same text

  void validate() const {
    if (!(temperature >= 0)) throw InputError("temperature is ", temperature, ", expected 0 or more");
    if (!(top_p > 0 && top_p <= 1)) throw InputError("top-p is ", top_p, ", expected 0 < top-p <= 1");
  }
};

/// The next id for logits [vocabulary]; draw number `step` of the seed. Ties at temperature 0 go to the lowest id.
inline std::int64_t sample(const at::Tensor& logits, const SamplingOptions& options, std::uint64_t step) {
  if (options.temperature == 0) return logits.argmax().item<std::int64_t>();
  const at::Tensor probabilities = (logits.to(at::kDouble) / options.temperature).softmax(0);
  const auto [sorted, ids] = probabilities.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor cumulative = sorted.cumsum(0);
  // Keep the tokens whose predecessors together have less than top_p: the first always stays.
  const std::int64_t kept = (cumulative - sorted).lt(options.top_p).sum().item<std::int64_t>();
  const double mass = cumulative[kept - 1].item<double>();
  const double draw = random_uniform(options.seed, step) * mass;
  const std::int64_t chosen = cumulative.narrow(0, 0, kept).le(draw).sum().item<std::int64_t>();
  return ids[std::min(chosen, kept - 1)].item<std::int64_t>();
}

}  // namespace ilme::generate
