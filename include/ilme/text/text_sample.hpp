/// A text to measure tokenizers on, with what does not depend on a tokenizer counted once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ilme/text/words.hpp>

namespace ilme::text {

/// Documents, and counts over all of them. Bytes and characters are those of the documents as they were given: the
/// line ends between them are not counted, and neither does a tokenizer's normaliser change them.
struct TextSample {
  std::string name;
  std::vector<std::string> documents;
  std::uint64_t bytes = 0, characters = 0;
  std::uint64_t words = 0;                  // whitespace words
  std::vector<std::string> distinct_words;  // the words themselves (WordSpan's core), each once, in byte order

  TextSample() = default;
  TextSample(std::string name_of_text, std::vector<std::string> documents_of_text)
      : name(std::move(name_of_text)), documents(std::move(documents_of_text)) {
    std::unordered_set<std::string_view> seen;
    for (const std::string& document : documents) {
      bytes += document.size();
      characters += count_characters(document);
      for_each_word(document, [&](const WordSpan& word) {
        ++words;
        if (word.has_core()) {
          seen.insert(std::string_view(document).substr(word.core_begin, word.core_end - word.core_begin));
        }
      });
    }
    distinct_words.assign(seen.begin(), seen.end());
    std::sort(distinct_words.begin(), distinct_words.end());
  }
};

/// The lines of `text` that are not empty, each a document.
inline TextSample sample_of_lines(std::string name, std::string_view text) {
  std::vector<std::string> documents;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) documents.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {std::move(name), std::move(documents)};
}

/// The beginning of a text to look at: its first document of some length, cut after a whole word.
inline std::string excerpt(const TextSample& sample, std::size_t longest_characters = 260) {
  constexpr std::size_t kSentence = 80;  // bytes; what is shorter is often a title
  const auto found = std::find_if(sample.documents.begin(), sample.documents.end(),
                                  [&](const std::string& document) { return document.size() >= kSentence; });
  if (sample.documents.empty()) return "";
  const std::string& document = found != sample.documents.end() ? *found : sample.documents.front();
  const char *const begin = document.data(), *const end = begin + document.size();
  const char *p = begin, *last_space = nullptr;
  for (std::size_t i = 0; i < longest_characters && p < end; ++i) {
    const DecodedCharacter character = decode_utf8(p, end);
    if (char_classes()[character.code_point] >= CharClass::space) last_space = p;
    p += character.length;
  }
  if (p == end) return document;
  return {begin, last_space != nullptr ? last_space : p};
}

}  // namespace ilme::text
