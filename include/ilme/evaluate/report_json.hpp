/// An evaluation as JSON: every figure and what it was made from.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/evaluate/measures.hpp>
#include <ilme/evaluate/report.hpp>

namespace ilme::evaluate {

namespace detail {

/// null for NaN.
inline Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

inline Json figures_json(const TaskFigures& task, std::size_t model) {
  Json json = Json::object();
  for (const Figure& figure : task.figures) {
    json[figure.measure->key] = number_or_null(figure.values[model].value);
    if (!std::isnan(figure.values[model].standard_error)) {
      json[std::string(figure.measure->key) + "_standard_error"] = figure.values[model].standard_error;
    }
  }
  return json;
}

inline Json documents_json(const std::vector<DocumentScore>& documents) {
  Json json = {{"negative_log_likelihood", Json::array()}, {"tokens", Json::array()}, {"bytes", Json::array()}};
  for (const DocumentScore& document : documents) {
    json["negative_log_likelihood"].push_back(document.negative_log_likelihood);
    json["tokens"].push_back(document.tokens);
    json["bytes"].push_back(document.bytes);
  }
  return json;
}

inline Json questions_json(const std::vector<ChoiceQuestion>& questions, const std::vector<ChoiceScore>& scores) {
  Json json = Json::array();
  for (std::size_t q = 0; q < scores.size(); ++q) {
    json.push_back({{"where", questions[q].where},
                    {"answer", questions[q].answer},
                    {"log_likelihoods", scores[q].log_likelihoods},
                    {"tokens", scores[q].tokens},
                    {"chosen", scores[q].chosen[0]},
                    {"chosen_characters", scores[q].chosen[1]},
                    {"chosen_bytes", scores[q].chosen[2]},
                    {"chosen_tokens", scores[q].chosen[3]},
                    {"shortened", scores[q].shortened}});
  }
  return json;
}

inline Json answers_json(const std::vector<Answer>& answers) {
  Json json = Json::array();
  for (const Answer& answer : answers) {
    json.push_back({{"text", answer.text}, {"tokens", answer.ids.size()}, {"ended", answer.ended}});
  }
  return json;
}

inline Json model_json(const Report& report, const std::vector<TaskFigures>& tasks, std::size_t index) {
  const ModelScores& model = report.models[index];
  Json json = {{"model", model.folder},          {"adapter", model.adapter.empty() ? Json() : Json(model.adapter)},
               {"start_token", model.start},     {"vocabulary", model.vocabulary},
               {"parameters", model.parameters}, {"seconds", model.seconds},
               {"texts", Json::array()},         {"choices", Json::array()},
               {"prompts", Json::array()}};
  std::size_t seen[3] = {};
  for (const TaskFigures& task : tasks) {
    const std::size_t t = seen[static_cast<std::size_t>(task.part)]++;
    Json entry = {{"name", task.name}};
    if (task.part == Part::text) {
      TextScore total;
      const auto add = [&](const std::vector<DocumentScore>& documents) {
        for (const DocumentScore& document : documents) total.add(document);
      };
      if (t < report.texts.size()) {
        entry["text"] = report.texts[t].file;
        add(model.texts[t]);
      } else {  // all of them
        for (const auto& documents : model.texts) add(documents);
      }
      entry.update({{"documents", total.documents}, {"bytes", total.bytes}, {"tokens", total.tokens}});
      entry.update(figures_json(task, index));
      if (t < report.texts.size()) entry["each_document"] = documents_json(model.texts[t]);
      json["texts"].push_back(std::move(entry));
    } else if (task.part == Part::choices) {
      if (t < report.choices.size()) entry["file"] = report.choices[t].source.file;
      entry.update(figures_json(task, index));
      if (t < report.choices.size()) {
        entry["each_question"] = questions_json(report.choices[t].items, model.choices[t]);
      }
      json["choices"].push_back(std::move(entry));
    } else {
      entry["file"] = report.prompts[t].file;
      entry.update(figures_json(task, index));
      entry["each_answer"] = answers_json(model.answers[t]);
      json["prompts"].push_back(std::move(entry));
    }
  }
  return json;
}

}  // namespace detail

/// {"model": ..., "texts": [...], "choices": [...], "prompts": [...], "settings": [...]}: figures with their standard
/// errors and every document, question and answer. With two models this is the second one (after), "baseline" holds the
/// same of the first, and "changes" the paired differences.
inline Json report_json(const Report& report, const std::vector<TaskFigures>& tasks) {
  Json json = detail::model_json(report, tasks, report.models.size() - 1);
  json["settings"] = report.settings;
  if (!report.compares()) return json;
  json["baseline"] = detail::model_json(report, tasks, 0);
  Json changes = Json::array();
  const char* parts[] = {"texts", "choices", "prompts"};
  for (const TaskFigures& task : tasks) {
    for (const Figure& figure : task.figures) {
      if (!figure.difference) continue;
      changes.push_back({{"part", parts[static_cast<std::size_t>(task.part)]},
                         {"name", task.name},
                         {"measure", figure.measure->key},
                         {"before", detail::number_or_null(figure.values[0].value)},
                         {"after", detail::number_or_null(figure.values[1].value)},
                         {"change", detail::number_or_null(figure.difference->value)},
                         {"standard_error", detail::number_or_null(figure.difference->standard_error)},
                         {"verdict", figure.verdict()}});
    }
  }
  json["changes"] = std::move(changes);
  return json;
}

}  // namespace ilme::evaluate
