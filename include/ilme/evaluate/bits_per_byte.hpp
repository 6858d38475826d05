/// How well a model predicts held-out text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/ops/cross_entropy.hpp>

namespace ilme::evaluate {

/// Sums over documents; the ratios are what people compare.
struct TextScore {
  double negative_log_likelihood = 0;  ///< natural log, summed over the scored tokens
  std::int64_t tokens = 0;             ///< scored: all but the first (BOS) of each document
  std::int64_t bytes = 0;              ///< UTF-8 bytes of the documents
  std::int64_t documents = 0;

  /// Comparable between tokenizers: bits needed per byte of text.
  double bits_per_byte() const { return negative_log_likelihood / std::log(2.0) / static_cast<double>(bytes); }
  /// exp of the mean token loss; comparable for one tokenizer only.
  double perplexity() const { return std::exp(negative_log_likelihood / static_cast<double>(tokens)); }
};

struct ScoreOptions {
  std::int64_t window = 1024;          ///< most tokens that the model sees at once
  std::int64_t stride = 512;           ///< tokens by which the window moves on in a longer document
  std::int64_t tokens_at_once = 4096;  ///< windows are packed together up to so many tokens
  std::function<void(std::int64_t documents)> progress = {};
};

/// Collects documents and scores them in packed batches. A document is its ids, BOS first; every later id is scored
/// once, given what precedes it in its window: of a window that is not the first, only the last `stride` ids count.
template <nn::CausalModel Model>
class TextScorer {
 public:
  TextScorer(Model& model, ScoreOptions options) : model_(model), options_(std::move(options)) {
    if (options_.window < 2) throw InputError("window is ", options_.window, ", expected 2 or more tokens");
    if (options_.stride < 1 || options_.stride >= options_.window) {
      throw InputError("stride is ", options_.stride, ", expected 1 to window - 1 = ", options_.window - 1);
    }
  }

  /// `ids`: BOS and the document's tokens (no EOS); `bytes`: its UTF-8 length.
  template <class Ids>
  void add(const Ids& ids, std::int64_t bytes) {
    const auto length = static_cast<std::int64_t>(ids.size());
    std::int64_t scored = 1;  // ids[0] is context only
    // A window has inputs ids[begin, begin + window) and predicts each one's successor.
    for (std::int64_t begin = 0; scored < length;) {
      const std::int64_t end = std::min(begin + options_.window, length - 1);
      if (static_cast<std::int64_t>(pending_.input_ids.size()) + end - begin > options_.tokens_at_once) flush();
      for (std::int64_t i = begin; i < end; ++i) {
        pending_.input_ids.push_back(static_cast<std::int64_t>(ids[static_cast<std::size_t>(i)]));
        pending_.position_ids.push_back(i - begin);
        const bool counts = i + 1 >= scored;
        pending_.labels.push_back(counts ? static_cast<std::int64_t>(ids[static_cast<std::size_t>(i + 1)])
                                         : data::kIgnoredLabel);
      }
      pending_.sequence_offsets.push_back(static_cast<std::int64_t>(pending_.input_ids.size()));
      scored = end + 1;
      begin = end + options_.stride - options_.window;
    }
    score_.bytes += bytes;
    ++score_.documents;
    if (options_.progress) options_.progress(score_.documents);
  }

  /// The score of all documents so far. InputError when there was no text.
  TextScore finish() {
    flush();
    if (score_.bytes == 0 || score_.tokens == 0) throw InputError("no text to score: every document is empty");
    return score_;
  }

 private:
  void flush() {
    if (pending_.input_ids.empty()) return;
    const c10::NoGradGuard no_gradient;
    pending_.rows = 1;
    pending_.sequence_length = static_cast<std::int64_t>(pending_.input_ids.size());
    pending_.sequence_offsets.insert(pending_.sequence_offsets.begin(), 0);
    const data::Batch batch = data::collate(pending_);
    const ops::LossSum loss = ops::linear_cross_entropy(model_.hidden(batch), model_.lm_head_weight(), batch.labels,
                                                        {.vocabulary_size = nn::used_vocabulary(model_)});
    score_.negative_log_likelihood += loss.sum.template item<double>();
    score_.tokens += loss.tokens;
    pending_ = {};
  }

  Model& model_;
  ScoreOptions options_;
  TextScore score_;
  data::PackedBatch pending_;
};

}  // namespace ilme::evaluate
