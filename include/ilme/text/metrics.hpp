/// How well a tokenizer fits a text.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/parallel.hpp>
#include <ilme/text/text_sample.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/words.hpp>

namespace ilme::text {

/// Tokens of the context length that most models of today are sold with, "128k".
inline constexpr std::uint64_t kContextTokens = 131072;

/// The order of the Rényi entropy that Zouhar et al. (2023) found to go best with the quality of translations.
inline constexpr double kRenyiAlpha = 2.5;

/// Bins of the distribution of token lengths in characters: 0 holds the tokens that are cut inside a character, the
/// last one all that are as long or longer.
inline constexpr std::size_t kTokenLengthBins = 21;

/// Counts over one text, and the measures that people compare tokenizers by. Each document is encoded by itself,
/// without BOS and EOS and with special tokens taken as text. A measure whose denominator is zero is zero.
struct TextMetrics {
  std::uint64_t bytes = 0, characters = 0, words = 0;  // as in TextSample
  std::uint64_t tokens = 0;
  std::uint64_t running_words = 0, continued_words = 0;  // words with a letter; those of them that two tokens cut
  std::uint64_t distinct_words = 0, retained_words = 0;  // the same words, each once; those of them that are one token
  std::uint64_t vocabulary_size = 0, tokens_seen = 0;    // ids; those of them that occur
  std::uint64_t single_byte_tokens = 0, cutting_tokens = 0;
  double renyi_entropy = 0.0;                                // bits, of the token frequencies
  std::array<std::uint64_t, kTokenLengthBins> lengths = {};  // tokens by their characters

  /// Fertility (Rust et al. 2021, "How Good is Your Tokenizer?", ACL): all tokens, those of punctuation and whitespace
  /// too, over whitespace words.
  double tokens_per_word() const { return ratio(tokens, words); }

  /// Compression; UTF-8 bytes of the source text, before a normaliser.
  double bytes_per_token() const { return ratio(bytes, tokens); }
  double characters_per_token() const { return ratio(characters, tokens); }

  /// Proportion of continued words (Rust et al. 2021): of the running words, those that two or more tokens share. Words
  /// are whitespace words with a letter, without the punctuation at their ends (the paper's are those of treebanks);
  /// they are looked at where they stand in the source, with the offsets of the tokens. A token counts for a word when
  /// it holds a byte of it: "kitab" in the tokens "(", "kitab", ")," is not continued, and neither is a word inside one
  /// token that spans several words, as superword patterns make them.
  double continued_word_rate() const { return ratio(continued_words, running_words); }

  /// Single token retention rate (Nayeem et al. 2025, "Beyond Fertility", arXiv:2510.09947): of the distinct words of
  /// the text, those that are one token. The same words as above, each encoded by itself after a space, which may be
  /// a part of the token or a token of its own.
  double single_token_retention() const { return ratio(retained_words, distinct_words); }

  /// Rényi efficiency (Zouhar et al. 2023, "Tokenization and the Noiseless Channel", ACL) of order 2.5:
  /// H(p) / log2 |V| with H = log2(sum p^2.5) / (1 - 2.5), p the token frequencies of the text and V the tokens that
  /// occur in it, as the authors' tokenization-scorer has it. 1: all of them are equally frequent.
  double renyi_efficiency() const { return efficiency(tokens_seen); }

  /// The same with the whole vocabulary as V, which also charges for tokens that the text never uses.
  double renyi_efficiency_of_vocabulary() const { return efficiency(vocabulary_size); }

  /// Share of the vocabulary that occurs in the text; grows with the text, so compare on one text only.
  double vocabulary_use() const { return ratio(tokens_seen, vocabulary_size); }

  /// Whitespace words of this text that a context of 131,072 tokens holds.
  double words_in_context() const {
    return tokens > 0 ? static_cast<double>(kContextTokens) * ratio(words, tokens) : 0.0;
  }

  /// Share of the text's tokens that are one byte long, ASCII characters too.
  double single_byte_share() const { return ratio(single_byte_tokens, tokens); }

  /// Share of the text's tokens that begin or end inside a character: they are not UTF-8 by themselves.
  double cutting_share() const { return ratio(cutting_tokens, tokens); }

  bool operator==(const TextMetrics&) const = default;

 private:
  static double ratio(std::uint64_t a, std::uint64_t b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
  }
  double efficiency(std::uint64_t size) const {
    return size > 1 ? renyi_entropy / std::log2(static_cast<double>(size)) : 0.0;
  }
};

namespace detail {

/// What one thread counts.
struct TokenCounts {
  std::vector<std::uint64_t> of_id;
  std::uint64_t running_words = 0, continued_words = 0;
};

/// The tokens of a document with their source bytes. Without a normaliser tokens tile the text as a rule, which is
/// known faster than by encode_with_offsets.
inline EncodedText encode_with_ranges(const Tokenizer& tokenizer, std::string_view document) {
  if (!tokenizer.model().normalizer.empty()) return tokenizer.encode_with_offsets(document);
  EncodedText encoded{tokenizer.encode(document), {}};
  std::size_t at = 0;
  for (const TokenId id : encoded.ids) {
    const std::size_t begin = at;
    at += tokenizer.token_bytes(id).size();
    encoded.ranges.push_back({begin, at});
  }
  return at == document.size() ? encoded : tokenizer.encode_with_offsets(document);
}

/// Counts the tokens of a document, and its words against them.
inline void count_document(const Tokenizer& tokenizer, std::string_view document, TokenCounts& counts) {
  const EncodedText encoded = encode_with_ranges(tokenizer, document);
  for (const TokenId id : encoded.ids) ++counts.of_id[id];
  std::size_t first = 0;  // token that ends behind the start of the word
  for_each_word(document, [&](const WordSpan& word) {
    if (!word.has_core()) return;
    while (first < encoded.ranges.size() && encoded.ranges[first].end <= word.core_begin) ++first;
    std::size_t holders = 0;
    for (std::size_t i = first; i < encoded.ranges.size() && encoded.ranges[i].begin < word.core_end; ++i) {
      holders += encoded.ranges[i].end > word.core_begin ? 1 : 0;
    }
    ++counts.running_words;
    counts.continued_words += holders > 1 ? 1 : 0;
  });
}

/// True when one token holds all of `word` in " word", and no other a part of it.
inline bool is_retained(const Tokenizer& tokenizer, const std::string& word) {
  std::size_t holders = 0, end = 0;
  for (const TokenId id : tokenizer.encode(" " + word)) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    end += bytes.size();
    holders += end > 1 || bytes.empty() || bytes[0] != ' ' ? 1 : 0;
  }
  return holders == 1;
}

/// Entropy of order kRenyiAlpha in bits.
inline double renyi_entropy(const std::vector<std::uint64_t>& counts, std::uint64_t total) {
  double sum = 0.0;
  for (const std::uint64_t count : counts) {
    if (count > 0) sum += std::pow(static_cast<double>(count) / static_cast<double>(total), kRenyiAlpha);
  }
  return sum > 0.0 ? std::max(0.0, std::log2(sum) / (1.0 - kRenyiAlpha)) : 0.0;
}

/// Indices that a thread takes at a time.
inline constexpr std::size_t kRun = 64;

/// Threads that have something to do on `count` things.
inline std::size_t useful_threads(std::size_t count, std::size_t threads) {
  return std::min(thread_count(threads), count / kRun + 1);
}

/// Hands out the indices below `count` in runs to `threads` threads: `visit(thread, index)`.
template <class Visit>
void for_each_index(std::size_t count, std::size_t threads, Visit&& visit) {
  std::atomic<std::size_t> next{0};
  parallel_for(threads, threads, [&](std::size_t thread) {
    for (std::size_t begin = next.fetch_add(kRun); begin < count; begin = next.fetch_add(kRun)) {
      for (std::size_t i = begin; i < std::min(begin + kRun, count); ++i) visit(thread, i);
    }
  });
}

}  // namespace detail

/// Measures on up to `threads` threads (0: all), with the same result for any number of them.
inline TextMetrics measure(const Tokenizer& tokenizer, const TextSample& sample, std::size_t threads = 1) {
  threads = detail::useful_threads(std::max(sample.documents.size(), sample.distinct_words.size()), threads);
  TextMetrics metrics;
  metrics.bytes = sample.bytes;
  metrics.characters = sample.characters;
  metrics.words = sample.words;
  metrics.vocabulary_size = tokenizer.vocabulary_size();
  metrics.distinct_words = sample.distinct_words.size();

  struct Worker {
    detail::TokenCounts counts;
    std::uint64_t retained = 0;
  };
  std::vector<Worker> workers(threads);
  for (Worker& worker : workers) worker.counts.of_id.resize(tokenizer.vocabulary_size());
  detail::for_each_index(sample.documents.size(), threads, [&](std::size_t thread, std::size_t i) {
    detail::count_document(tokenizer, sample.documents[i], workers[thread].counts);
  });
  detail::for_each_index(sample.distinct_words.size(), threads, [&](std::size_t thread, std::size_t i) {
    workers[thread].retained += detail::is_retained(tokenizer, sample.distinct_words[i]) ? 1 : 0;
  });

  std::vector<std::uint64_t> counts(tokenizer.vocabulary_size());
  for (const Worker& worker : workers) {
    for (std::size_t id = 0; id < counts.size(); ++id) counts[id] += worker.counts.of_id[id];
    metrics.running_words += worker.counts.running_words;
    metrics.continued_words += worker.counts.continued_words;
    metrics.retained_words += worker.retained;
  }
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] == 0) continue;
    const std::string_view bytes = tokenizer.token_bytes(static_cast<TokenId>(id));
    const bool cuts = !is_valid_utf8(bytes);
    metrics.tokens += counts[id];
    ++metrics.tokens_seen;
    if (bytes.size() == 1) metrics.single_byte_tokens += counts[id];
    if (cuts) metrics.cutting_tokens += counts[id];
    metrics.lengths[cuts ? 0 : std::min<std::size_t>(count_characters(bytes), kTokenLengthBins - 1)] += counts[id];
  }
  metrics.renyi_entropy = detail::renyi_entropy(counts, metrics.tokens);
  return metrics;
}

/// The same for the lines of `text`, each a document.
inline TextMetrics measure(const Tokenizer& tokenizer, std::string_view text, std::size_t threads = 1) {
  return measure(tokenizer, sample_of_lines("text", text), threads);
}

}  // namespace ilme::text
