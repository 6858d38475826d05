/// The measures of a comparison by name: what tables, charts and JSON show, in their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <ilme/text/metrics.hpp>
#include <ilme/text/number_text.hpp>

namespace ilme::text {

enum class Better { lower, higher, neither };
enum class MetricFormat { count, ratio, percent };

struct Metric {
  const char* key;      // in JSON
  const char* head[2];  // column head of a table, in two lines
  const char* title;    // with a capital, for a page
  MetricFormat format;
  int decimals;  // of a ratio or percentage
  Better better;
  double (*value)(const TextMetrics&);
  const char* definition;  // for people who did not read metrics.hpp; ends with the source, if there is one
};

/// The measures that every table shows; JSON has these and the raw counts.
inline constexpr std::array<Metric, 10> kMetrics = {{
    {"tokens",
     {"tokens", ""},
     "Tokens",
     MetricFormat::count,
     0,
     Better::lower,
     [](const TextMetrics& m) { return static_cast<double>(m.tokens); },
     "Tokens of the text, each document encoded by itself, without tokens for its beginning and end."},
    {"tokens_per_word",
     {"tokens", "/word"},
     "Tokens per word",
     MetricFormat::ratio,
     3,
     Better::lower,
     [](const TextMetrics& m) { return m.tokens_per_word(); },
     "Fertility: all tokens over the words between whitespace. (Rust et al. 2021, How Good is Your Tokenizer?)"},
    {"bytes_per_token",
     {"bytes", "/token"},
     "Bytes per token",
     MetricFormat::ratio,
     3,
     Better::higher,
     [](const TextMetrics& m) { return m.bytes_per_token(); },
     "Compression: UTF-8 bytes of the source text over tokens."},
    {"characters_per_token",
     {"chars", "/token"},
     "Characters per token",
     MetricFormat::ratio,
     3,
     Better::higher,
     [](const TextMetrics& m) { return m.characters_per_token(); },
     "Characters (code points) of the source text over tokens."},
    {"continued_word_rate",
     {"words", "cut"},
     "Words cut",
     MetricFormat::percent,
     1,
     Better::lower,
     [](const TextMetrics& m) { return m.continued_word_rate(); },
     "Proportion of continued words: of the running words, those that two or more tokens share. A word is what stands "
     "between whitespace, without punctuation at its ends, if it has a letter. (Rust et al. 2021)"},
    {"single_token_retention_rate",
     {"STRR", ""},
     "Single token retention rate",
     MetricFormat::percent,
     1,
     Better::higher,
     [](const TextMetrics& m) { return m.single_token_retention(); },
     "Of the distinct words of the text, those that are one token after a space. (Nayeem et al. 2025, Beyond "
     "Fertility)"},
    {"renyi_efficiency",
     {"Renyi", "eff."},
     "Rényi efficiency",
     MetricFormat::ratio,
     3,
     Better::higher,
     [](const TextMetrics& m) { return m.renyi_efficiency(); },
     "Rényi entropy of order 2.5 of the token frequencies over log2 of the number of tokens that occur in the text; 1 "
     "when all of them are equally frequent. Not comparable between texts. (Zouhar et al. 2023, Tokenization and the "
     "Noiseless Channel)"},
    {"vocabulary_use",
     {"vocab.", "used"},
     "Vocabulary used",
     MetricFormat::percent,
     1,
     Better::neither,
     [](const TextMetrics& m) { return m.vocabulary_use(); },
     "Share of the vocabulary that occurs in the text. It grows with the text."},
    {"cutting_share",
     {"cut", "chars"},
     "Tokens that cut a character",
     MetricFormat::percent,
     2,
     Better::lower,
     [](const TextMetrics& m) { return m.cutting_share(); },
     "Share of the tokens that begin or end inside a character, so that they are not UTF-8 by themselves."},
    {"words_in_context",
     {"words in", "128k ctx"},
     "Words in a context of 131,072 tokens",
     MetricFormat::count,
     0,
     Better::higher,
     [](const TextMetrics& m) { return m.words_in_context(); },
     "Words between whitespace that a context of 131,072 tokens holds."},
}};

/// The entry of kMetrics with `key`, which must be one of them.
inline constexpr const Metric& metric(std::string_view key) {
  for (const Metric& candidate : kMetrics) {
    if (key == candidate.key) return candidate;
  }
  return kMetrics[0];
}

/// A value as tables show it: "12,345", "1.360", "25.4 %".
inline std::string format_metric(const Metric& metric, double value) {
  if (metric.format == MetricFormat::count) return with_commas(value);
  if (metric.format == MetricFormat::percent) return fixed(100.0 * value, metric.decimals) + " %";
  return fixed(value, metric.decimals);
}

}  // namespace ilme::text
