/// The figures of scored text. Plain data without torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace ilme::evaluate {

/// One document under one model.
struct DocumentScore {
  double negative_log_likelihood = 0;  ///< natural log, summed over the scored tokens
  std::int64_t tokens = 0;             ///< scored: all but the first (BOS)
  std::int64_t bytes = 0;              ///< of its UTF-8
};

/// Sums over documents; the ratios are what people compare.
struct TextScore {
  double negative_log_likelihood = 0;
  std::int64_t tokens = 0, bytes = 0, documents = 0;

  void add(const DocumentScore& document) {
    negative_log_likelihood += document.negative_log_likelihood;
    tokens += document.tokens;
    bytes += document.bytes;
    ++documents;
  }

  /// Comparable between tokenizers: bits needed per byte of text.
  double bits_per_byte() const { return negative_log_likelihood / std::log(2.0) / static_cast<double>(bytes); }
  /// exp of the mean token loss; comparable for one tokenizer only.
  double perplexity() const { return std::exp(negative_log_likelihood / static_cast<double>(tokens)); }
};

}  // namespace ilme::evaluate
