/// An evaluation as text in aligned columns.
#pragma once

#include <string>
#include <vector>

#include <ilme/evaluate/measures.hpp>
#include <ilme/evaluate/report.hpp>
#include <ilme/text/text_table.hpp>

namespace ilme::evaluate {

inline const char* part_title(Part part) {
  return part == Part::text ? "Text" : part == Part::choices ? "Multiple choice" : "Generation";
}

namespace detail {

/// One model: a row for each task, a column for each measure.
inline void add_wide(text::TextTable& table, const std::vector<TaskFigures>& tasks, Part part) {
  bool head = true;
  for (const TaskFigures& task : tasks) {
    if (task.part != part) continue;
    std::vector<std::string> titles{""}, row{task.name};
    for (const Figure& figure : task.figures) {
      titles.emplace_back(figure.measure->title);
      row.push_back(format_value(*figure.measure, figure.values[0].value) +
                    format_error(*figure.measure, figure.values[0]));
    }
    titles.emplace_back("of");
    row.push_back(task.note);
    if (head) table.add(std::move(titles));
    head = false;
    table.add(std::move(row));
  }
}

/// Two models: a row for each measure of each task.
inline void add_comparison(text::TextTable& table, const std::vector<TaskFigures>& tasks, Part part) {
  table.add({"", "before", "after", "change", ""});
  for (const TaskFigures& task : tasks) {
    if (task.part != part) continue;
    table.add({task.name + " (" + task.note + ")"});
    for (const Figure& figure : task.figures) {
      std::vector<std::string> row{std::string("  ") + figure.measure->title};
      for (const Estimate& value : figure.values) {
        row.push_back(format_value(*figure.measure, value.value) + format_error(*figure.measure, value));
      }
      row.push_back(format_difference(figure));
      row.emplace_back(figure.verdict());
      table.add(std::move(row));
    }
  }
}

}  // namespace detail

/// One table for each kind of task, and below them what the figures depend on. \u00B1 is the standard error; that of a
/// change is of the paired difference, and "better" and "worse" are said beyond 1.96 of it.
inline std::string report_table(const Report& report, const std::vector<TaskFigures>& tasks) {
  std::string out;
  for (const Part part : {Part::text, Part::choices, Part::answers}) {
    bool any = false;
    for (const TaskFigures& task : tasks) any |= task.part == part;
    if (!any) continue;
    text::TextTable table;
    if (report.compares()) {
      detail::add_comparison(table, tasks, part);
    } else {
      detail::add_wide(table, tasks, part);
    }
    out += std::string(part_title(part)) + "\n" + table.str() + "\n";
  }
  for (std::size_t m = 0; m < report.models.size(); ++m) {
    const ModelScores& model = report.models[m];
    out += (report.compares() ? m == 0 ? "before: " : "after: " : "model: ") + model.folder +
           (model.adapter.empty() ? "" : " with " + model.adapter) + "; texts start with " + model.start + "\n";
  }
  for (const std::string& setting : report.settings) out += setting + "\n";
  return out;
}

}  // namespace ilme::evaluate
