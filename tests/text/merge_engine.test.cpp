#include <ilme/text/merge_engine.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/random.hpp>
#include <ilme/text/bpe_trainer.hpp>

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

using Names = std::pair<std::string, std::string>;
using CountedWords = std::map<std::string, std::uint64_t>;

/// Training by its definition: every pair of every word is counted anew for each merge.
std::vector<Names> merges_by_definition(const CountedWords& words, std::uint64_t min_count, std::size_t max_length,
                                        std::size_t merge_count) {
  std::vector<std::pair<std::vector<std::string>, std::uint64_t>> split;
  std::map<std::string, std::size_t> ids;
  for (const std::uint8_t byte : byte_level_alphabet())
    ids.emplace(std::string(1, static_cast<char>(byte)), ids.size());
  for (const auto& [word, count] : words) {
    split.emplace_back();
    for (const char c : word) split.back().first.emplace_back(1, c);
    split.back().second = count;
  }
  std::vector<Names> merges;
  while (ids.size() < 256 + merge_count) {
    std::map<Names, std::uint64_t> counts;
    for (const auto& [tokens, count] : split) {
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        const std::size_t length = tokens[i].size() + tokens[i + 1].size();
        if (length == 2 || max_length == 0 || length < max_length) counts[{tokens[i], tokens[i + 1]}] += count;
      }
    }
    const Names* best = nullptr;
    std::uint64_t most = 0;
    for (const auto& [pair, count] : counts) {
      const auto order = [&](const Names& names) { return std::pair(ids.at(names.first), ids.at(names.second)); };
      if (count > most || (count == most && order(pair) < order(*best))) {
        best = &pair;
        most = count;
      }
    }
    if (best == nullptr || most < min_count) break;
    const Names merge = *best;
    merges.push_back(merge);
    ids.emplace(merge.first + merge.second, ids.size());
    for (auto& [tokens, count] : split) {
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != merge.first || tokens[i + 1] != merge.second) continue;
        tokens[i] += tokens[i + 1];
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

}  // namespace

TEST_CASE("Merges are those of the definition, and no token comes about in two ways") {
  std::size_t second_ways = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    auto draw = [seed, i = std::uint64_t{0}](std::uint64_t below) mutable { return random_bits(seed, ++i) % below; };
    CountedWords words;
    const std::uint64_t letters = 2 + draw(3), longest = 3 + draw(12);
    for (std::uint64_t i = 0, count = 2 + draw(30); i < count; ++i) {
      std::string word;
      for (std::uint64_t j = 0, length = 1 + draw(longest); j < length; ++j) {
        word += static_cast<char>('a' + draw(letters));
      }
      words[word] += 1 + draw(4);
    }
    BpeTrainerOptions options;
    options.min_frequency = draw(5);
    options.max_token_length = draw(3) == 0 ? 3 + draw(4) : 0;
    const std::size_t merge_count = draw(60);
    options.vocabulary_size = 256 + merge_count;
    WordCounter counter;
    for (const auto& [word, count] : words) counter.add(word, count);
    const TokenizerModel model = BpeTrainer(PreTokenizer::named("llama3"), options).train(counter);
    std::vector<Names> merges;
    std::set<TokenId> results;
    for (const Merge& merge : model.merges) {
      merges.emplace_back(model.tokens[merge.left], model.tokens[merge.right]);
      second_ways += !results.insert(merge.result).second;
    }
    INFO("seed " << seed);
    CHECK(merges == merges_by_definition(words, options.min_frequency, options.max_token_length, merge_count));
  }
  CHECK(second_ways == 0);
}
