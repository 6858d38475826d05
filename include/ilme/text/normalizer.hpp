/// Rewriting text before it is split: what Hugging Face's normalisers do, with the same result.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/aligned_text.hpp>
#include <ilme/text/az_normalizer.hpp>
#include <ilme/text/letter_in_words.hpp>
#include <ilme/text/regex.hpp>
#include <ilme/text/unicode.hpp>
#include <ilme/text/unicode_normalization.hpp>

namespace ilme::text {

/// A chain of steps; without any it leaves every text as it is. A value: copies are cheap and share what is compiled,
/// any number of threads may use one at once. Bytes that are no UTF-8 pass through every step untouched.
class Normalizer {
 public:
  Normalizer() = default;

  /// Reads the `normalizer` of a tokenizer.json (null: none): NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents,
  /// Replace, Prepend and Sequence of these. Any other is refused by name. Throws InputError that opens with `where`.
  static Normalizer from_json(const Json& json, const std::string& where) {
    Normalizer normalizer;
    normalizer.json_ = json;
    if (!json.is_null()) normalizer.add(json, where, 0);
    return normalizer;
  }

  /// `none`, `nfc`, `nfd`, `nfkc`, `nfkd`, `az` (see AzNormalizerOptions) or `az-lower` (with lower case). Throws
  /// InputError on another name.
  static Normalizer named(std::string_view name) {
    if (name == "none") return {};
    if (name == "az") return from_json(az_normalizer_json(), "az");
    if (name == "az-lower") return from_json(az_normalizer_json({.lowercase = true}), "az-lower");
    for (const auto& [own, type] :
         {std::pair<std::string_view, const char*>{"nfc", "NFC"}, {"nfd", "NFD"}, {"nfkc", "NFKC"}, {"nfkd", "NFKD"}}) {
      if (name == own) return from_json({{"type", type}}, std::string(name));
    }
    throw InputError("normalizer \"", name, "\" is not known, expected none, nfc, nfd, nfkc, nfkd, az or az-lower");
  }

  /// What from_json read; null for a normaliser without steps that came from nowhere.
  const Json& json() const noexcept { return json_; }

  /// True when no text changes.
  bool empty() const noexcept { return steps_.empty(); }

  std::string normalize(std::string_view text) const {
    std::string current(text), next;
    for (const Step& step : steps_) {
      next.clear();
      next.reserve(current.size());
      detail::PlainRewriter out(next);
      step.write(current, out);
      current.swap(next);
    }
    return current;
  }

  /// The same with the range in the source of every byte, by the rules of detail::AlignedRewriter.
  AlignedText normalize(AlignedText text) const {
    for (const Step& step : steps_) {
      AlignedText next;
      detail::AlignedRewriter out(text, next);
      step.write(text.text, out);
      text = std::move(next);
    }
    return text;
  }

 private:
  static constexpr std::size_t kDeepest = 100;  // Sequences within one another

  enum class Kind { form, lowercase, strip, strip_accents, replace_string, replace_regex, replace_in_words, prepend };

  struct Step {
    Kind kind;
    NormalizationForm form = NormalizationForm::nfc;
    bool left = false, right = false;             // what strip strips
    std::string pattern = {}, content = {};       // of replace_string; of all that bring something in
    std::shared_ptr<const Regex> regex = {};      // of replace_regex
    const detail::LetterInWords* rule = nullptr;  // of replace_in_words

    template <class Rewriter>
    void write(std::string_view text, Rewriter& out) const {
      switch (kind) {
        case Kind::form:
          return detail::write_normalized(text, form, out);
        case Kind::lowercase:
          return detail::write_lowercase(text, out);
        case Kind::strip:
          return strip(text, out);
        case Kind::strip_accents:
          return detail::write_without_marks(text, out);
        case Kind::replace_string: {
          std::size_t kept = 0;
          for (std::size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, kept)) {
            replace(text, kept, at, at + pattern.size(), out);
          }
          return out.keep(text.substr(kept));
        }
        case Kind::replace_regex: {
          std::size_t kept = 0;
          regex->each_match(text, [&](std::size_t begin, std::size_t end) { replace(text, kept, begin, end, out); });
          return out.keep(text.substr(kept));
        }
        case Kind::replace_in_words: {
          std::size_t kept = 0;
          rule->each_match(text, [&](std::size_t begin, std::size_t end) { replace(text, kept, begin, end, out); });
          return out.keep(text.substr(kept));
        }
        case Kind::prepend:
          return prepend(text, out);
      }
    }

    template <class Rewriter>
    void replace(std::string_view text, std::size_t& kept, std::size_t begin, std::size_t end, Rewriter& out) const {
      out.keep(text.substr(kept, begin - kept));
      out.drop(text.substr(begin, end - begin));
      for_each_unit(content, [&](char32_t code) { out.insert(code); });
      kept = end;
    }

    template <class Rewriter>
    void strip(std::string_view text, Rewriter& out) const {
      const auto is_space = [](char32_t code) { return char_classes()[code] >= CharClass::space; };
      std::size_t begin = 0, end = text.size();
      while (left && begin < end) {
        const DecodedCharacter first = decode_utf8(text.data() + begin, text.data() + end);
        if (!is_space(first.code_point)) break;
        begin += first.length;
      }
      while (right && end > begin) {
        const DecodedCharacter last = last_character(text.substr(begin, end - begin));
        if (!is_space(last.code_point)) break;
        end -= last.length;
      }
      out.drop(text.substr(0, begin));
      out.keep(text.substr(begin, end - begin));
    }

    /// What comes in first stands for the first character, as at Hugging Face, and that character for itself.
    template <class Rewriter>
    void prepend(std::string_view text, Rewriter& out) const {
      if (text.empty() || content.empty()) return out.keep(text);
      const detail::Unit first = detail::decode_unit(text.data(), text.data() + text.size());
      bool replaced = false;
      for_each_unit(content, [&](char32_t code) {
        replaced ? out.insert(code) : out.replace(code, 0);
        replaced = true;
      });
      out.insert(first.code);
      out.keep(text.substr(first.length));
    }

    template <class Visit>
    static void for_each_unit(std::string_view text, Visit&& visit) {
      for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        const detail::Unit unit = detail::decode_unit(p, end);
        visit(unit.code);
        p += unit.length;
      }
    }
  };

  void add(const Json& json, const std::string& where, std::size_t depth) {
    JsonObject object(json, where);
    const auto type = object.require<std::string>("type");
    if (type == "Sequence") {
      const Json members = object.raw("normalizers");
      if (!members.is_array() || depth >= kDeepest) {
        throw InputError(where, ": key \"normalizers\" is ", ilme::detail::short_dump(members),
                         ", expected an array, at most ", kDeepest, " deep");
      }
      for (const Json& member : members) add(member, where, depth + 1);
    } else if (type == "NFC") {
      steps_.push_back({.kind = Kind::form, .form = NormalizationForm::nfc});
    } else if (type == "NFD") {
      steps_.push_back({.kind = Kind::form, .form = NormalizationForm::nfd});
    } else if (type == "NFKC") {
      steps_.push_back({.kind = Kind::form, .form = NormalizationForm::nfkc});
    } else if (type == "NFKD") {
      steps_.push_back({.kind = Kind::form, .form = NormalizationForm::nfkd});
    } else if (type == "Lowercase") {
      steps_.push_back({.kind = Kind::lowercase});
    } else if (type == "StripAccents") {
      steps_.push_back({.kind = Kind::strip_accents});
    } else if (type == "Strip") {
      steps_.push_back({.kind = Kind::strip,
                        .left = object.require<bool>("strip_left"),
                        .right = object.require<bool>("strip_right")});
    } else if (type == "Prepend") {
      steps_.push_back({.kind = Kind::prepend, .content = object.require<std::string>("prepend")});
    } else if (type == "Replace") {
      add_replace(object);
    } else {
      throw InputError(where, ": ", ilme::detail::short_dump(json),
                       " is not supported, expected NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, "
                       "Prepend or a Sequence");
    }
    object.refuse_unknown();
  }

  void add_replace(JsonObject& object) {
    const Json json = object.raw("pattern");
    JsonObject pattern(json, object.where() + ": pattern");
    Step step{.kind = Kind::replace_string, .content = object.require<std::string>("content")};
    if (pattern.has("Regex")) {
      step.kind = Kind::replace_regex;
      step.pattern = pattern.require<std::string>("Regex");
    } else {
      step.pattern = pattern.require<std::string>("String");
    }
    pattern.refuse_unknown();
    if (step.kind == Kind::replace_regex) step.rule = detail::find_letter_in_words(step.pattern);
    if (step.rule != nullptr) {
      step.kind = Kind::replace_in_words;
    } else if (step.kind == Kind::replace_regex || step.pattern.empty()) {  // nothing is found between all characters
      step.kind = Kind::replace_regex;
      try {
        step.regex = std::make_shared<const Regex>(step.pattern);
      } catch (const InputError& error) {
        throw InputError(object.where(), ": ", error.what());
      }
    }
    steps_.push_back(std::move(step));
  }

  Json json_;
  std::vector<Step> steps_;
};

}  // namespace ilme::text
