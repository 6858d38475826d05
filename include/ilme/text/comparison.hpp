/// Several tokenizers on several texts: all measures as data, for a table, JSON or a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/text/encode_speed.hpp>
#include <ilme/text/metric_list.hpp>
#include <ilme/text/metrics.hpp>
#include <ilme/text/parity.hpp>
#include <ilme/text/text_sample.hpp>
#include <ilme/text/token_split.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::text {

struct NamedTokenizer {
  std::string name;
  Tokenizer tokenizer;
};

/// Results; every vector that holds one for each tokenizer is in the order of `tokenizers`.
struct Comparison {
  struct TokenizerFacts {
    std::string name;
    std::uint64_t vocabulary_size = 0;
  };
  struct Text {
    std::string name;
    std::uint64_t documents = 0, bytes = 0, characters = 0, words = 0;
    std::vector<TextMetrics> metrics;
    std::vector<EncodeSpeed> speeds;                // empty when no speed was asked for
    std::vector<std::vector<SplitToken>> excerpts;  // the beginning of the text in tokens
  };
  struct Parallel {
    std::string first_name, second_name;
    std::vector<ParityMetrics> metrics;
  };
  struct Word {
    std::string word;
    std::vector<std::vector<SplitToken>> splits;
  };

  std::vector<TokenizerFacts> tokenizers;
  std::vector<Text> texts;
  std::vector<Parallel> parallel;
  std::vector<Word> words;
};

struct ComparisonOptions {
  std::size_t threads = 0;  // 0: all
  bool speed = true;        // times encoding too, which takes three to six passes more over every text
};

/// Measures every tokenizer on every text:
///
///     const Comparison result = compare({{"base", Tokenizer::load("base")}, {"mine", Tokenizer::load("mine")}},
///                                       {sample_of_lines("az", text)}, {}, {"kitablardan"});
///     std::cout << comparison_table(result);
///
/// One after another, each with all threads, so that the speeds are right.
inline Comparison compare(const std::vector<NamedTokenizer>& tokenizers, const std::vector<TextSample>& texts,
                          const std::vector<ParallelText>& parallel, const std::vector<std::string>& words,
                          const ComparisonOptions& options = {}) {
  Comparison result;
  for (const NamedTokenizer& t : tokenizers) result.tokenizers.push_back({t.name, t.tokenizer.vocabulary_size()});
  for (const TextSample& sample : texts) {
    Comparison::Text text{sample.name, sample.documents.size(), sample.bytes, sample.characters, sample.words, {}, {},
                          {}};
    for (const NamedTokenizer& t : tokenizers) {
      text.metrics.push_back(measure(t.tokenizer, sample, options.threads));
      if (options.speed) text.speeds.push_back(measure_speed(t.tokenizer, sample, options.threads));
      text.excerpts.push_back(split_text(t.tokenizer, excerpt(sample)));
    }
    result.texts.push_back(std::move(text));
  }
  for (const ParallelText& pairs : parallel) {
    Comparison::Parallel entry{pairs.first_name, pairs.second_name, {}};
    for (const NamedTokenizer& t : tokenizers) {
      entry.metrics.push_back(measure_parity(t.tokenizer, pairs, options.threads));
    }
    result.parallel.push_back(std::move(entry));
  }
  for (const std::string& word : words) {
    Comparison::Word entry{word, {}};
    for (const NamedTokenizer& t : tokenizers) entry.splits.push_back(split_word(t.tokenizer, word));
    result.words.push_back(std::move(entry));
  }
  return result;
}

/// The figures as JSON:
///
///     {"texts":    [{name, documents, bytes, characters, words}],
///      "results":  [{name, text, vocabulary_size, every key of kMetrics, running_words, continued_words,
///      distinct_words,
///                    retained_words, tokens_seen, single_byte_tokens, single_byte_share, cutting_tokens,
///                    renyi_entropy_bits, renyi_efficiency_of_vocabulary, token_lengths, encode_megabytes_per_second:
///                    {cold, warm, warm_all_threads, threads}}],
///      "parallel": [{name, first, second, pairs, first_tokens, second_tokens, premium, mean_ratio}],
///      "words":    [{name, word, tokens, split, ids}]}
///
/// `name` is the tokenizer's; shares are between 0 and 1; `token_lengths` counts the text's tokens by their characters
/// (kTokenLengthBins). There is one entry for each text (pair, word) and tokenizer.
inline Json comparison_json(const Comparison& comparison) {
  Json texts = Json::array(), results = Json::array(), parallel = Json::array(), words = Json::array();
  for (const Comparison::Text& text : comparison.texts) {
    texts.push_back({{"name", text.name},
                     {"documents", text.documents},
                     {"bytes", text.bytes},
                     {"characters", text.characters},
                     {"words", text.words}});
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      const TextMetrics& m = text.metrics[i];
      Json row = {{"name", comparison.tokenizers[i].name}, {"text", text.name}, {"vocabulary_size", m.vocabulary_size}};
      for (const Metric& metric : kMetrics) {
        row[metric.key] = metric.value(m);
      }
      row["tokens"] = m.tokens;
      row["running_words"] = m.running_words;
      row["continued_words"] = m.continued_words;
      row["distinct_words"] = m.distinct_words;
      row["retained_words"] = m.retained_words;
      row["tokens_seen"] = m.tokens_seen;
      row["single_byte_tokens"] = m.single_byte_tokens;
      row["single_byte_share"] = m.single_byte_share();
      row["cutting_tokens"] = m.cutting_tokens;
      row["renyi_entropy_bits"] = m.renyi_entropy;
      row["renyi_efficiency_of_vocabulary"] = m.renyi_efficiency_of_vocabulary();
      row["token_lengths"] = m.lengths;
      if (!text.speeds.empty()) {
        const EncodeSpeed& speed = text.speeds[i];
        row["encode_megabytes_per_second"] = {{"cold", speed.cold / 1e6},
                                              {"warm", speed.warm / 1e6},
                                              {"warm_all_threads", speed.warm_all / 1e6},
                                              {"threads", speed.threads}};
      }
      results.push_back(std::move(row));
    }
  }
  for (const Comparison::Parallel& pairs : comparison.parallel) {
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      const ParityMetrics& m = pairs.metrics[i];
      parallel.push_back({{"name", comparison.tokenizers[i].name},
                          {"first", pairs.first_name},
                          {"second", pairs.second_name},
                          {"pairs", m.pairs},
                          {"first_tokens", m.first_tokens},
                          {"second_tokens", m.second_tokens},
                          {"premium", m.premium()},
                          {"mean_ratio", m.mean_ratio}});
    }
  }
  for (const Comparison::Word& word : comparison.words) {
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      Json ids = Json::array();
      for (const SplitToken& token : word.splits[i]) ids.push_back(token.id);
      words.push_back({{"name", comparison.tokenizers[i].name},
                       {"word", word.word},
                       {"tokens", word.splits[i].size()},
                       {"split", show_split(word.splits[i])},
                       {"ids", std::move(ids)}});
    }
  }
  return {{"texts", std::move(texts)},
          {"results", std::move(results)},
          {"parallel", std::move(parallel)},
          {"words", std::move(words)}};
}

}  // namespace ilme::text
