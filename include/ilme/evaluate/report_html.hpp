/// An evaluation as one HTML page that needs nothing else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <ilme/evaluate/measures.hpp>
#include <ilme/evaluate/report.hpp>
#include <ilme/evaluate/report_table.hpp>
#include <ilme/text/html.hpp>
#include <ilme/text/html_page.hpp>
#include <ilme/text/svg_chart.hpp>
#include <ilme/version.hpp>

namespace ilme::evaluate {

namespace detail {

inline std::string model_label(const Report& report, std::size_t m) {
  return report.compares() ? m == 0 ? "before" : "after" : "model";
}

/// What a comparison says at one glance, a sentence for each task's charted measure.
inline std::string summary_html(const Report& report, const std::vector<TaskFigures>& tasks) {
  std::string keys;
  for (std::size_t m = 0; m < report.models.size(); ++m) {
    const ModelScores& model = report.models[m];
    const std::string what =
        model_label(report, m) + ": " + model.folder + (model.adapter.empty() ? "" : " with " + model.adapter);
    keys +=
        text::element("span", "class=\"" + text::detail::series_class(m) + "\"", "<i></i>" + text::escape_html(what));
  }
  std::string out = text::element("div", "class=\"legend\"", keys);
  for (const TaskFigures& task : tasks) {
    for (const Figure& figure : task.figures) {
      if (!figure.measure->charted || !figure.difference) continue;
      const std::string verdict = figure.verdict();
      std::string line = text::element("em", "", text::escape_html(task.name)) + ": " + figure.measure->title + " " +
                         format_value(*figure.measure, figure.values[0].value) + " \u2192 " +
                         format_value(*figure.measure, figure.values[1].value) + ", " + format_difference(figure);
      line += verdict.empty() ? ", no clear difference" : ", " + text::element("strong", "", verdict);
      out += text::element("p", "", line + ".");
    }
  }
  return text::element("div", "class=\"summary\"", out) + "\n";
}

/// Bars of one measure, a chart for each task.
inline std::string measure_section(const Report& report, const std::vector<TaskFigures>& tasks, const Measure& shown) {
  std::string charts;
  for (const TaskFigures& task : tasks) {
    for (const Figure& figure : task.figures) {
      if (figure.measure != &shown) continue;
      std::vector<text::Bar> bars;
      for (std::size_t m = 0; m < figure.values.size(); ++m) {
        const Estimate& value = figure.values[m];
        bars.push_back({model_label(report, m), std::isfinite(value.value) ? value.value : 0.0,
                        format_value(shown, value.value) + format_error(shown, value), m});
      }
      charts += text::figure(task.name + ": " + task.note, text::bar_chart(task.name, bars));
    }
  }
  if (charts.empty()) return "";
  std::string title = std::string(part_title(shown.part)) + ": " + shown.title;
  const std::string direction = shown.better == text::Better::lower ? "Lower is better. " : "Higher is better. ";
  return text::section(title, direction + shown.definition, text::element("div", "class=\"grid2\"", charts));
}

inline std::string figures_section(const Report& report, const std::vector<TaskFigures>& tasks) {
  std::string head = "<th scope=\"col\">measure</th>";
  for (std::size_t m = 0; m < report.models.size(); ++m) {
    head += text::element("th", "scope=\"col\"", model_label(report, m));
  }
  if (report.compares()) head += "<th scope=\"col\">change</th><th scope=\"col\"></th>";
  std::string tables;
  for (const TaskFigures& task : tasks) {
    std::string rows;
    for (const Figure& figure : task.figures) {
      std::string row = text::element("th", "scope=\"row\"", figure.measure->title);
      for (const Estimate& value : figure.values) {
        row +=
            text::element("td", "", format_value(*figure.measure, value.value) + format_error(*figure.measure, value));
      }
      if (report.compares()) {
        row += text::element("td", "", format_difference(figure));
        row += text::element("td", "class=\"best\"", figure.verdict());
      }
      rows += text::element("tr", "", row) + "\n";
    }
    tables += text::element("h3", "", text::escape_html(task.name) + ": " + task.note);
    tables += text::element("div", "class=\"scroll\"",
                            text::element("table", "",
                                          text::element("thead", "", text::element("tr", "", head)) +
                                              text::element("tbody", "", rows))) +
              "\n";
  }
  return text::section("All figures",
                       "\u00B1 is the standard error; that of a change is of the paired difference, document by "
                       "document or question by question, and a change beyond 1.96 of it is called better or worse.",
                       tables);
}

/// The first answers of each prompt file, side by side.
inline std::string answers_section(const Report& report) {
  constexpr std::size_t kShown = 5;
  std::string out;
  for (std::size_t t = 0; t < report.prompts.size(); ++t) {
    out += text::element("h3", "", text::escape_html(report.prompts[t].name));
    for (std::size_t i = 0; i < std::min(kShown, report.models[0].answers[t].size()); ++i) {
      std::string rows;
      for (std::size_t m = 0; m < report.models.size(); ++m) {
        const Answer& answer = report.models[m].answers[t][i];
        rows += text::element("tr", "",
                              text::element("th", "scope=\"row\"", model_label(report, m)) +
                                  text::element("td", "", std::to_string(answer.ids.size()) + " tokens") +
                                  text::element("td", "", text::escape_html(answer.text)));
      }
      out += text::element("p", "class=\"soft\"", "prompt " + std::to_string(i + 1)) +
             text::element("table", "class=\"splits\"", text::element("tbody", "", rows)) + "\n";
    }
  }
  return out.empty() ? "" : text::section("Answers", "The first ones of each file.", out);
}

inline std::string definitions_html(const Report& report) {
  std::string list;
  for (const Measure& measure : kMeasures) {
    list +=
        text::element("dt", "", measure.title) + text::element("dd", "", text::escape_html(measure.definition)) + "\n";
  }
  std::string settings;
  for (const std::string& setting : report.settings) settings += text::element("p", "", text::escape_html(setting));
  for (std::size_t m = 0; m < report.models.size(); ++m) {
    settings += text::element(
        "p", "", model_label(report, m) + ": texts start with " + text::escape_html(report.models[m].start) + ".");
  }
  return text::element(
             "details", "",
             text::element("summary", "", "What the figures mean") + text::element("dl", "", list) + settings) +
         "\n";
}

}  // namespace detail

/// The page: a summary, bars of the main measures by task, every figure, answers, definitions. Names and texts are
/// escaped.
inline std::string report_html(const Report& report, const std::vector<TaskFigures>& tasks) {
  std::string body = detail::summary_html(report, tasks);
  for (const Measure& measure : kMeasures) {
    if (measure.charted) body += detail::measure_section(report, tasks, measure);
  }
  body += detail::figures_section(report, tasks) + detail::answers_section(report) + detail::definitions_html(report);
  body += text::element("p", "class=\"soft\"", std::string("Made by ilme-evaluate ") + ILME_VERSION + ".") + "\n";
  return text::html_page(report.compares() ? "Before and after" : "Evaluation", body);
}

}  // namespace ilme::evaluate
