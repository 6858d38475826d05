/// How many tokens the same content needs in two languages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ilme/text/metrics.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::text {

struct SentencePair {
  std::string first, second;
};

/// Sentences in two languages that say the same, pair by pair.
struct ParallelText {
  std::string first_name, second_name;
  std::vector<SentencePair> pairs;
};

/// Counts over parallel text.
struct ParityMetrics {
  std::uint64_t pairs = 0;
  std::uint64_t first_tokens = 0, second_tokens = 0;
  double mean_ratio = 0.0;  // of the pairs, tokens of the first sentence over tokens of the second

  /// The premium of the first language over the second (Petrov et al. 2023, "Language Model Tokenizers Introduce
  /// Unfairness Between Languages", NeurIPS): all tokens of the first over all of the second. 1 is parity; 3 means
  /// that the first language pays three times as much, and that a context holds a third of the content.
  double premium() const {
    return second_tokens > 0 ? static_cast<double>(first_tokens) / static_cast<double>(second_tokens) : 0.0;
  }
  bool operator==(const ParityMetrics&) const = default;
};

/// Measures on up to `threads` threads (0: all), with the same result for any number of them. A pair of which a
/// normaliser leaves nothing is out of the mean.
inline ParityMetrics measure_parity(const Tokenizer& tokenizer, const ParallelText& text, std::size_t threads = 1) {
  struct Counts {
    std::size_t first = 0, second = 0;
  };
  std::vector<Counts> counts(text.pairs.size());
  detail::for_each_index(
      text.pairs.size(), detail::useful_threads(text.pairs.size(), threads), [&](std::size_t, std::size_t i) {
        counts[i] = {tokenizer.encode(text.pairs[i].first).size(), tokenizer.encode(text.pairs[i].second).size()};
      });
  ParityMetrics metrics;
  metrics.pairs = counts.size();
  double ratios = 0.0;
  std::size_t comparable = 0;
  for (const Counts& pair : counts) {
    metrics.first_tokens += pair.first;
    metrics.second_tokens += pair.second;
    if (pair.first == 0 || pair.second == 0) continue;
    ratios += static_cast<double>(pair.first) / static_cast<double>(pair.second);
    ++comparable;
  }
  if (comparable > 0) metrics.mean_ratio = ratios / static_cast<double>(comparable);
  return metrics;
}

}  // namespace ilme::text
