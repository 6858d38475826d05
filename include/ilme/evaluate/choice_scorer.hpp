/// Multiple choice by log-likelihood.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/evaluate/choices.hpp>
#include <ilme/evaluate/likelihood.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::evaluate {

struct ChoiceOptions {
  std::string delimiter = " ";         ///< between prompt and choice, lm-evaluation-harness's target_delimiter
  std::int64_t window = 1024;          ///< most tokens that the model sees; a longer prompt loses its beginning
  std::int64_t tokens_at_once = 4096;  ///< choices are packed together up to so many tokens
  std::function<void(std::int64_t questions)> progress = {};
};

/// Scores every choice of every question given its prompt, and judges which is chosen. `start` opens each prompt (see
/// start_token). Throws InputError when a choice alone is longer than the window.
template <nn::CausalModel Model>
std::vector<ChoiceScore> score_choices(Model& model, const text::Tokenizer& tokenizer, text::TokenId start,
                                       std::span<const ChoiceQuestion> questions, const ChoiceOptions& options = {}) {
  std::vector<ChoiceScore> scores(questions.size());
  LikelihoodScorer<Model> scorer(model, options.tokens_at_once);
  std::size_t slot = 0;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    for (const std::string& choice : questions[q].choices) {
      EncodedChoice encoded = encode_choice(tokenizer, start, questions[q].prompt, options.delimiter, choice);
      const std::int64_t length = std::ssize(encoded.ids), over = length - 1 - options.window;
      if (over >= encoded.first) {
        throw InputError(questions[q].where, ": a choice has ", length - encoded.first,
                         " tokens, more than the window of ", options.window);
      }
      if (over > 0) {
        encoded.ids.erase(encoded.ids.begin(), encoded.ids.begin() + over);
        encoded.first -= over;
        scores[q].shortened = true;
      }
      scores[q].tokens.push_back(std::ssize(encoded.ids) - encoded.first);
      scorer.add(encoded.ids, encoded.first, slot++);
    }
    if (options.progress) options.progress(static_cast<std::int64_t>(q + 1));
  }
  scorer.flush();
  slot = 0;
  for (std::size_t q = 0; q < questions.size(); ++q) {
    for (std::size_t i = 0; i < questions[q].choices.size(); ++i) {
      scores[q].log_likelihoods.push_back(-scorer.sums()[slot++]);
    }
    judge(questions[q], scores[q]);
  }
  return scores;
}

}  // namespace ilme::evaluate
