/// Multiple-choice questions: their files, their ids, and what counts as a right answer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/unicode.hpp>
#include <ilme/text/words.hpp>

namespace ilme::evaluate {

struct ChoiceQuestion {
  std::string prompt;                ///< `context` (few-shot examples) and `question`, one after the other
  std::vector<std::string> choices;  ///< two or more, all different
  std::size_t answer = 0;            ///< index of the right one
  std::string where;                 ///< "file:line"
};

/// Reads {"question": text, "choices": [texts], "answer": index from 0 or the text of a choice}; "context" may hold
/// text that goes before the question as it stands; other keys are ignored. Throws InputError that opens with `where`
/// and names the key.
inline ChoiceQuestion read_choice_question(const Json& line, const std::string& where) {
  using ilme::detail::short_dump;
  JsonObject object(line, where);
  ChoiceQuestion question;
  question.where = where;
  question.prompt = object.get<std::string>("context", "") + object.require<std::string>("question");
  const Json choices = object.raw("choices");
  if (!choices.is_array() || choices.size() < 2) {
    throw InputError(where, ": key \"choices\" is ", choices.is_null() ? "missing" : short_dump(choices),
                     ", expected a list of two or more texts");
  }
  for (const Json& choice : choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      throw InputError(where, ": key \"choices\" holds ", short_dump(choice), ", expected texts that are not empty");
    }
    const auto text = choice.get<std::string>();
    if (std::find(question.choices.begin(), question.choices.end(), text) != question.choices.end()) {
      throw InputError(where, ": key \"choices\" holds ", short_dump(choice), " twice");
    }
    question.choices.push_back(text);
  }
  const Json answer = object.raw("answer");
  if (answer.is_string()) {
    const auto found = std::find(question.choices.begin(), question.choices.end(), answer.get<std::string>());
    question.answer = static_cast<std::size_t>(found - question.choices.begin());
  } else if (answer.is_number_integer() && answer >= 0) {
    question.answer = answer.get<std::size_t>();
  } else {
    question.answer = question.choices.size();
  }
  if (question.answer >= question.choices.size()) {
    throw InputError(where, ": key \"answer\" is ", answer.is_null() ? "missing" : short_dump(answer),
                     ", expected an index from 0 to ", question.choices.size() - 1, " or the text of a choice");
  }
  return question;
}

/// A prompt with one choice behind it: `ids[first..]` are the choice's.
struct EncodedChoice {
  std::vector<std::int64_t> ids;
  std::int64_t first = 0;
};

/// `start`, prompt, `delimiter` and choice as ids, split as lm-evaluation-harness does it (`_encode_pair`): the
/// choice's are those of the whole text beyond as many as the prompt alone has; whitespace that ends the prompt goes
/// with the choice. One id is the choice's at least, should the tokenizer merge across the border.
inline EncodedChoice encode_choice(const text::Tokenizer& tokenizer, text::TokenId start, const std::string& prompt,
                                   const std::string& delimiter, const std::string& choice) {
  std::string_view before = prompt;
  while (!before.empty()) {
    const text::DecodedCharacter last = text::last_character(before);
    if (text::char_classes()[last.code_point] < text::CharClass::space) break;
    before.remove_suffix(last.length);
  }
  EncodedChoice encoded;
  encoded.ids.push_back(start);
  for (const text::TokenId id : tokenizer.encode(prompt + delimiter + choice)) encoded.ids.push_back(id);
  const auto length = static_cast<std::int64_t>(encoded.ids.size());
  encoded.first = std::min(1 + static_cast<std::int64_t>(tokenizer.encode(before).size()), length - 1);
  return encoded;
}

/// How the log-likelihood of a choice is made comparable with those of longer and shorter ones.
enum class ChoiceNorm { sum, characters, bytes, tokens };
inline constexpr std::array kChoiceNorms = {ChoiceNorm::sum, ChoiceNorm::characters, ChoiceNorm::bytes,
                                            ChoiceNorm::tokens};

/// A question's choices under one model.
struct ChoiceScore {
  std::vector<double> log_likelihoods;     ///< natural log, summed over the choice's tokens
  std::vector<std::int64_t> tokens;        ///< of each choice
  std::array<std::size_t, 4> chosen = {};  ///< index of the likeliest choice by each of kChoiceNorms
  std::array<bool, 4> right = {};
  double chance = 0;       ///< of guessing right
  bool shortened = false;  ///< the window had no room for the whole prompt
};

/// Fills in `chosen`, `right` and `chance` from the log-likelihoods: the largest quotient of log-likelihood and length
/// is chosen, the first of equal ones. `sum` is lm-evaluation-harness's acc, `characters` its acc_norm (which divides
/// by Python's len of the choice), `bytes` the norm that its authors describe (Gao 2021, Multiple Choice Normalization
/// in LM Evaluation), `tokens` that of Brown et al. 2020 (GPT-3).
inline void judge(const ChoiceQuestion& question, ChoiceScore& score) {
  score.chance = 1.0 / static_cast<double>(question.choices.size());
  for (std::size_t n = 0; n < kChoiceNorms.size(); ++n) {
    std::vector<double> normalized;
    for (std::size_t i = 0; i < question.choices.size(); ++i) {
      double length = 1;
      if (kChoiceNorms[n] == ChoiceNorm::characters) {
        length = static_cast<double>(text::count_characters(question.choices[i]));
      } else if (kChoiceNorms[n] == ChoiceNorm::bytes) {
        length = static_cast<double>(question.choices[i].size());
      } else if (kChoiceNorms[n] == ChoiceNorm::tokens) {
        length = static_cast<double>(score.tokens[i]);
      }
      normalized.push_back(score.log_likelihoods[i] / length);
    }
    const auto best = std::max_element(normalized.begin(), normalized.end());
    score.chosen[n] = static_cast<std::size_t>(best - normalized.begin());
    score.right[n] = score.chosen[n] == question.answer;
  }
}

}  // namespace ilme::evaluate
