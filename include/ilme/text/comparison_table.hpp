/// A comparison as text in aligned columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ilme/text/comparison.hpp>
#include <ilme/text/metric_list.hpp>
#include <ilme/text/text_table.hpp>
#include <ilme/text/words.hpp>

namespace ilme::text {

namespace detail {

inline std::string text_table(const Comparison& comparison, const Comparison::Text& text) {
  TextTable table;
  for (int line = 0; line < 2; ++line) {
    std::vector<std::string> head = {line == 0 ? "tokenizer" : "", line == 0 ? "vocab." : ""};
    for (const Metric& metric : kMetrics) head.emplace_back(metric.head[line]);
    if (!text.speeds.empty()) head.emplace_back(line == 0 ? "MB/s" : "1 / all");
    table.add(std::move(head));
  }
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    std::vector<std::string> row = {comparison.tokenizers[i].name,
                                    with_commas(static_cast<double>(comparison.tokenizers[i].vocabulary_size))};
    for (const Metric& metric : kMetrics) {
      std::string cell = format_metric(metric, metric.value(text.metrics[i]));
      if (metric.format == MetricFormat::percent) cell.erase(cell.find(' '), 1);
      row.push_back(std::move(cell));
    }
    if (!text.speeds.empty()) {
      row.push_back(fixed(text.speeds[i].warm / 1e6, 0) + " / " + fixed(text.speeds[i].warm_all / 1e6, 0));
    }
    table.add(std::move(row));
  }
  return table.str();
}

inline std::string parallel_table(const Comparison& comparison, const Comparison::Parallel& pairs) {
  TextTable table;
  table.add({"tokenizer", pairs.first_name + " tokens", pairs.second_name + " tokens", "premium", "mean of pairs"});
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    const ParityMetrics& m = pairs.metrics[i];
    table.add({comparison.tokenizers[i].name, with_commas(static_cast<double>(m.first_tokens)),
               with_commas(static_cast<double>(m.second_tokens)), fixed(m.premium(), 3), fixed(m.mean_ratio, 3)});
  }
  return table.str();
}

}  // namespace detail

/// One table for each text and parallel text, and the splits of the words; about 120 columns wide.
inline std::string comparison_table(const Comparison& comparison) {
  std::string out;
  for (const Comparison::Text& text : comparison.texts) {
    out += text.name + ": " + with_commas(static_cast<double>(text.words)) + " words, " +
           with_commas(static_cast<double>(text.bytes)) + " bytes, " +
           with_commas(static_cast<double>(text.documents)) + " documents\n" + detail::text_table(comparison, text) +
           "\n";
  }
  for (const Comparison::Parallel& pairs : comparison.parallel) {
    out += pairs.first_name + " and " + pairs.second_name + ": " +
           with_commas(pairs.metrics.empty() ? 0.0 : static_cast<double>(pairs.metrics[0].pairs)) +
           " parallel sentences\n" + detail::parallel_table(comparison, pairs) + "\n";
  }
  for (const Comparison::Word& word : comparison.words) {
    out += word.word + "\n";
    std::size_t width = 0;
    for (const auto& tokenizer : comparison.tokenizers)
      width = std::max<std::size_t>(width, count_characters(tokenizer.name));
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      const std::string& name = comparison.tokenizers[i].name;
      const std::string count = std::to_string(word.splits[i].size());
      out += "  " + name + std::string(width - count_characters(name) + 2, ' ') +
             std::string(count.size() < 2 ? 1 : 0, ' ') + count + "  " + show_split(word.splits[i]) + "\n";
    }
    out += "\n";
  }
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace ilme::text
