/// The normaliser for Azerbaijani, as steps that Hugging Face executes to the same result.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <ilme/core/json.hpp>
#include <ilme/text/letter_in_words.hpp>

namespace ilme::text {

/// Which steps the normaliser takes, in this order. A word here is a run of letters (\p{L}).
struct AzNormalizerOptions {
  /// i + U+0307 (what lower-casing İ by other languages' rules leaves) to i.
  bool dotted_i = true;
  /// Canonical composition (NFC): `s` + cedilla is `ş`, `g` + breve `ğ`.
  bool nfc = true;
  /// ǝ and Ǝ (U+01DD, U+018E) to ə and Ə, and so Cyrillic ә and Ә (U+04D9, U+04D8) in words that contain a Latin
  /// letter; words all in Cyrillic (Kazakh, Tatar, Azerbaijani before 1991) stay as they are.
  bool schwa = true;
  /// ’ ‘ ʼ ` ´ (U+2019, U+2018, U+02BC, U+0060, U+00B4) between letters to '. In the 18 MB of the corpus ' stands 1249
  /// times between letters, ’ 1012 times, ` 11 times, all for the same sound or before a suffix. ʼ is the letter
  /// Unicode recommends for it, ‘ and ´ what word processors and keyboards make of it. Quotation marks stand beside
  /// words and stay, and so do ʻ (U+02BB), a letter of Uzbek, and the prime ′ (U+2032), a sign of units.
  bool apostrophe = true;
  /// Romanian ș and Ș (U+0219, U+0218, comma below) to ş and Ş (cedilla) in words that contain ə, Ə, ğ, Ğ or ı. The
  /// capital of ı tells nothing: it is everybody's I.
  bool cedilla = true;
  /// Lower case, by the rules of Azerbaijani: İ is i, I is ı.
  bool lowercase = false;
};

/// The `normalizer` of a tokenizer.json, for Normalizer::from_json; null when no step is asked for.
inline Json az_normalizer_json(const AzNormalizerOptions& options = {}) {
  Json steps = Json::array();
  const auto replace = [&](const char* kind, std::string_view pattern, std::string_view content) {
    steps.push_back(
        {{"type", "Replace"}, {"pattern", {{kind, std::string(pattern)}}}, {"content", std::string(content)}});
  };
  if (options.dotted_i) replace("String", "i\u0307", "i");
  if (options.nfc) steps.push_back({{"type", "NFC"}});
  if (options.schwa) {
    replace("String", "\u01DD", "\u0259");
    replace("String", "\u018E", "\u018F");
    for (const auto& rule : detail::kCyrillicSchwas) replace("Regex", rule.pattern(), rule.content);
  }
  if (options.apostrophe) replace("Regex", "[\u2019\u2018\u02BC`\u00B4](?<=\\p{L}.)(?=\\p{L})", "'");
  if (options.cedilla) {
    for (const auto& rule : detail::kRomanianLetters) replace("Regex", rule.pattern(), rule.content);
  }
  if (options.lowercase) {
    replace("String", "\u0130", "i");
    replace("String", "I", "\u0131");
    steps.push_back({{"type", "Lowercase"}});
  }
  if (steps.empty()) return nullptr;
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

}  // namespace ilme::text
