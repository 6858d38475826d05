/// How well a model predicts held-out text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/evaluate/likelihood.hpp>
#include <ilme/evaluate/text_score.hpp>
#include <ilme/nn/concepts.hpp>

namespace ilme::evaluate {

struct ScoreOptions {
  std::int64_t window = 1024;          ///< most tokens that the model sees at once
  std::int64_t stride = 512;           ///< tokens by which the window moves on in a longer document
  std::int64_t tokens_at_once = 4096;  ///< windows are packed together up to so many tokens
  std::function<void(std::int64_t documents)> progress = {};
};

/// Collects documents and scores them in packed batches. A document is its ids, BOS first; every later id is scored
/// once, given what precedes it in its window: of a window that is not the first, only the last `stride` ids count, and
/// it opens with the text itself, not with BOS. (Transformers' recipe for models of fixed length, "Perplexity of
/// fixed-length models" in its documentation.)
template <nn::CausalModel Model>
class TextScorer {
 public:
  TextScorer(Model& model, ScoreOptions options)
      : options_(std::move(options)), scorer_(model, options_.tokens_at_once) {
    if (options_.window < 2) throw InputError("window is ", options_.window, ", expected 2 or more tokens");
    if (options_.stride < 1 || options_.stride >= options_.window) {
      throw InputError("stride is ", options_.stride, ", expected 1 to window - 1 = ", options_.window - 1);
    }
  }

  /// `ids`: BOS and the document's tokens (no EOS); `bytes`: its UTF-8 length.
  template <class Ids>
  void add(const Ids& ids, std::int64_t bytes) {
    const std::vector<std::int64_t> all(ids.begin(), ids.end());
    const auto length = static_cast<std::int64_t>(all.size());
    std::int64_t scored = 1;  // ids[0] is context only
    // A window has inputs ids[begin, begin + window) and predicts each one's successor.
    for (std::int64_t begin = 0; scored < length;) {
      const std::int64_t end = std::min(begin + options_.window, length - 1);
      scorer_.add(std::span(all).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin + 1)),
                  scored - begin, documents_.size());
      scored = end + 1;
      begin = end + options_.stride - options_.window;
    }
    documents_.push_back({0, std::max<std::int64_t>(length - 1, 0), bytes});
    if (options_.progress) options_.progress(static_cast<std::int64_t>(documents_.size()));
  }

  /// The score of all documents so far. InputError when there was no text.
  TextScore finish() {
    scorer_.flush();
    for (std::size_t i = 0; i < scorer_.sums().size(); ++i) documents_[i].negative_log_likelihood = scorer_.sums()[i];
    TextScore score;
    for (const DocumentScore& document : documents_) score.add(document);
    if (score.bytes == 0 || score.tokens == 0) throw InputError("no text to score: every document is empty");
    return score;
  }

  /// Each document by itself, in the order in which they were added; complete after `finish`.
  const std::vector<DocumentScore>& documents() const noexcept { return documents_; }

 private:
  ScoreOptions options_;
  LikelihoodScorer<Model> scorer_;
  std::vector<DocumentScore> documents_;
};

}  // namespace ilme::evaluate
