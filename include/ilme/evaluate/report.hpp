/// What an evaluation found: the tasks, and the scores of one model or of two to compare. Plain data without torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ilme/evaluate/choices.hpp>
#include <ilme/evaluate/repetition.hpp>
#include <ilme/evaluate/text_score.hpp>

namespace ilme::evaluate {

/// A file under the name that tables give it.
struct NamedFile {
  std::string name, file;
};

/// Questions or prompts of a file.
template <class Item>
struct Task {
  NamedFile source;
  std::vector<Item> items;
};

/// The scores of one model, in the order of the report's tasks.
struct ModelScores {
  std::string folder, adapter;  ///< adapter "": none
  std::string start;            ///< the token before the first one, and who says so
  std::string tokenizer;        ///< fingerprint
  std::int64_t vocabulary = 0, parameters = 0;
  double seconds = 0;                             ///< of scoring, loading left out
  std::vector<std::vector<DocumentScore>> texts;  ///< [text][document]
  std::vector<std::vector<ChoiceScore>> choices;  ///< [task][question]
  std::vector<std::vector<Answer>> answers;       ///< [task][prompt]
};

struct Report {
  std::vector<NamedFile> texts;
  std::vector<Task<ChoiceQuestion>> choices;
  std::vector<NamedFile> prompts;
  std::vector<std::string> settings;  ///< what the figures depend on, in words
  std::vector<ModelScores> models;    ///< one; or two: before and after

  bool compares() const noexcept { return models.size() == 2; }
};

}  // namespace ilme::evaluate
