/// How much a generated text repeats itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/text/words.hpp>

namespace ilme::evaluate {

/// 1 - distinct n-grams / all n-grams of one sequence: 0 when none occurs twice. seq-rep-n of Welleck et al. 2020,
/// Neural Text Generation with Unlikelihood Training. 0 for a sequence with fewer than n items.
inline double repeated_ngrams(std::span<const std::int64_t> items, std::size_t n) {
  if (n == 0 || items.size() < n) return 0;
  std::set<std::vector<std::int64_t>> distinct;
  const std::size_t all = items.size() - n + 1;
  for (std::size_t i = 0; i < all; ++i) {
    const auto ngram = items.subspan(i, n);
    distinct.insert(std::vector<std::int64_t>(ngram.begin(), ngram.end()));
  }
  return 1.0 - static_cast<double>(distinct.size()) / static_cast<double>(all);
}

/// Distinct n-grams of all sequences together over all their items: distinct-n of Li et al. 2016, A Diversity-Promoting
/// Objective Function for Neural Conversation Models. It falls with the amount of text; compare equal numbers of
/// answers. 0 for no items.
inline double distinct_ngrams(std::span<const std::vector<std::int64_t>> sequences, std::size_t n) {
  std::set<std::vector<std::int64_t>> distinct;
  std::size_t items = 0;
  for (const auto& sequence : sequences) {
    items += sequence.size();
    for (std::size_t i = 0; i + n <= sequence.size(); ++i) {
      const auto begin = sequence.begin() + static_cast<std::ptrdiff_t>(i);
      distinct.insert(std::vector<std::int64_t>(begin, begin + static_cast<std::ptrdiff_t>(n)));
    }
  }
  return items == 0 ? 0 : static_cast<double>(distinct.size()) / static_cast<double>(items);
}

/// Numbers for the words between whitespace, equal words having equal numbers: n-grams of words can be compared between
/// models with different tokenizers, those of tokens cannot.
class WordNumbers {
 public:
  std::vector<std::int64_t> operator()(std::string_view text) {
    std::vector<std::int64_t> numbers;
    text::for_each_word(text, [&](const text::WordSpan& word) {
      const std::string bytes(text.substr(word.begin, word.end - word.begin));
      numbers.push_back(known_.try_emplace(bytes, static_cast<std::int64_t>(known_.size())).first->second);
    });
    return numbers;
  }

 private:
  std::map<std::string, std::int64_t> known_;
};

/// What a model said to one prompt.
struct Answer {
  std::vector<std::int64_t> ids;
  std::string text;
  bool ended = false;  ///< by a stop token, as against the limit of tokens
};

}  // namespace ilme::evaluate
