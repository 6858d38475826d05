/// A comparison as one HTML page that needs nothing else: no scripts, no fonts, no network; light and dark.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ilme/text/comparison.hpp>
#include <ilme/text/html.hpp>
#include <ilme/text/html_page.hpp>
#include <ilme/text/metric_list.hpp>
#include <ilme/text/svg_chart.hpp>
#include <ilme/version.hpp>

namespace ilme::text {

namespace detail {

inline std::string bars(const Comparison& comparison, const std::string& title,
                        const std::function<double(std::size_t)>& value,
                        const std::function<std::string(double)>& format) {
  std::vector<Bar> out;
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    out.push_back({comparison.tokenizers[i].name, value(i), format(value(i)), i});
  }
  return figure(title, bar_chart(title, out));
}

/// Bars of one measure, a chart for each text.
inline std::string metric_section(const Comparison& comparison, const Metric& shown) {
  std::string charts;
  for (const Comparison::Text& text : comparison.texts) {
    charts += bars(
        comparison, text.name, [&](std::size_t i) { return shown.value(text.metrics[i]); },
        [&](double value) { return format_metric(shown, value); });
  }
  const std::string direction = shown.better == Better::lower ? "Lower is better. " : "Higher is better. ";
  return section(shown.title, direction + shown.definition, element("div", "class=\"grid2\"", charts));
}

inline std::string premium_section(const Comparison& comparison) {
  std::string charts;
  for (const Comparison::Parallel& pairs : comparison.parallel) {
    charts += bars(
        comparison,
        pairs.first_name + " over " + pairs.second_name + ", " +
            with_commas(static_cast<double>(pairs.metrics[0].pairs)) + " pairs of sentences",
        [&](std::size_t i) { return pairs.metrics[i].premium(); }, [](double value) { return fixed(value, 3); });
  }
  return section("Premium",
                 "Tokens of the first language over tokens of the second for the same sentences; 1 is parity. (Petrov "
                 "et al. 2023, Language Model Tokenizers Introduce Unfairness Between Languages)",
                 element("div", "class=\"grid2\"", charts));
}

inline std::string vocabulary_section(const Comparison& comparison) {
  std::string charts;
  for (const Comparison::Text& text : comparison.texts) {
    std::vector<ChartPoint> points;
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      points.push_back({static_cast<double>(comparison.tokenizers[i].vocabulary_size),
                        text.metrics[i].tokens_per_word(), comparison.tokenizers[i].name, i});
    }
    charts += figure(text.name + ": tokens per word", log_point_chart(text.name, "vocabulary size (k = 1024)", points));
  }
  return section("Vocabulary size and tokens per word",
                 "A larger vocabulary makes texts shorter, and the model's embedding and head larger.",
                 element("div", "class=\"grid2\"", charts));
}

inline std::string legend(const Comparison& comparison) {
  std::string keys;
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    keys +=
        element("span", "class=\"" + series_class(i) + "\"", "<i></i>" + escape_html(comparison.tokenizers[i].name));
  }
  return element("div", "class=\"legend\"", keys);
}

inline std::string length_section(const Comparison& comparison) {
  std::vector<std::string> labels(kTokenLengthBins);
  labels[0] = "cut";
  labels[1] = "1";
  for (std::size_t i = 5; i + 1 < kTokenLengthBins; i += 5) labels[i] = std::to_string(i);
  labels.back() = std::to_string(kTokenLengthBins - 1) + "+";
  std::string charts;
  for (const Comparison::Text& text : comparison.texts) {
    std::vector<ChartLine> lines;
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      const TextMetrics& m = text.metrics[i];
      ChartLine line{{}, comparison.tokenizers[i].name, i};
      for (const std::uint64_t count : m.lengths) {
        line.values.push_back(static_cast<double>(count) / static_cast<double>(std::max<std::uint64_t>(m.tokens, 1)));
      }
      lines.push_back(std::move(line));
    }
    charts += figure(text.name + ": share of its tokens",
                     percent_line_chart(text.name, "characters in the token", labels, lines));
  }
  return section("Token length",
                 "Characters of the text's tokens, the space before a word among them; \u201Ccut\u201D are the tokens "
                 "that begin or end inside a character.",
                 legend(comparison) + element("div", "class=\"grid2\"", charts));
}

/// The index of the best tokenizer by a measure on a text.
inline std::size_t best_of(const Comparison::Text& text, const Metric& metric) {
  const auto better = [&](const TextMetrics& a, const TextMetrics& b) {
    return metric.better == Better::lower ? metric.value(a) < metric.value(b) : metric.value(a) > metric.value(b);
  };
  return static_cast<std::size_t>(std::min_element(text.metrics.begin(), text.metrics.end(), better) -
                                  text.metrics.begin());
}

/// The tokenizer with the fewest tokens after the best one.
inline std::optional<std::size_t> runner_up(const Comparison::Text& text, std::size_t best) {
  std::optional<std::size_t> next;
  for (std::size_t i = 0; i < text.metrics.size(); ++i) {
    if (i != best && (!next || text.metrics[i].tokens < text.metrics[*next].tokens)) next = i;
  }
  return next;
}

inline std::string figures_table(const Comparison& comparison, const Comparison::Text& text) {
  std::string head = "<th scope=\"col\">tokenizer</th><th scope=\"col\">vocabulary</th>";
  for (const Metric& metric : kMetrics) {
    head += element("th", "scope=\"col\" title=\"" + escape_html(metric.title) + "\"",
                    escape_html(std::string(metric.head[0]) + ' ' + metric.head[1]));
  }
  if (!text.speeds.empty()) {
    head += "<th scope=\"col\" title=\"one thread, cold / one thread, warm / " +
            std::to_string(text.speeds[0].threads) + " threads, warm\">MB/s cold / warm / all</th>";
  }
  std::string rows;
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    std::string row = element("th", "scope=\"row\"", escape_html(comparison.tokenizers[i].name)) +
                      element("td", "", with_commas(static_cast<double>(comparison.tokenizers[i].vocabulary_size)));
    for (const Metric& metric : kMetrics) {
      const double value = metric.value(text.metrics[i]);
      const bool best = metric.better != Better::neither && value == metric.value(text.metrics[best_of(text, metric)]);
      row += element("td", best ? "class=\"best\"" : "", format_metric(metric, value));
    }
    if (!text.speeds.empty()) {
      const EncodeSpeed& speed = text.speeds[i];
      row += element(
          "td", "",
          fixed(speed.cold / 1e6, 0) + " / " + fixed(speed.warm / 1e6, 0) + " / " + fixed(speed.warm_all / 1e6, 0));
    }
    rows += element("tr", "", row) + "\n";
  }
  return element("div", "class=\"scroll\"",
                 element("table", "", element("thead", "", element("tr", "", head)) + element("tbody", "", rows)));
}

inline std::string figures_section(const Comparison& comparison) {
  std::string tables;
  for (const Comparison::Text& text : comparison.texts) {
    tables += element("h3", "",
                      escape_html(text.name) + ": " + with_commas(static_cast<double>(text.words)) + " words, " +
                          with_commas(static_cast<double>(text.bytes)) + " bytes, " +
                          with_commas(static_cast<double>(text.documents)) + " documents");
    tables += figures_table(comparison, text) + "\n";
  }
  return section("All figures",
                 "The best of each column is bold; names that the mouse rests on are written out, and explained below.",
                 tables);
}

/// One row for each tokenizer: how many tokens, and which.
inline std::string splits_table(const Comparison& comparison, const std::vector<std::vector<SplitToken>>& splits) {
  std::string rows;
  for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
    rows +=
        element("tr", "",
                element("th", "scope=\"row\"", escape_html(comparison.tokenizers[i].name)) +
                    element("td", "", std::to_string(splits[i].size())) + element("td", "", tokens_html(splits[i]))) +
        "\n";
  }
  return element("table", "class=\"splits\"", element("tbody", "", rows)) + "\n";
}

inline std::string splits_section(const Comparison& comparison) {
  std::string words, texts;
  for (const Comparison::Word& word : comparison.words) {
    words += element("h3", "", escape_html(word.word)) + splits_table(comparison, word.splits);
  }
  for (const Comparison::Text& text : comparison.texts) {
    texts += element("h3", "", escape_html(text.name)) + splits_table(comparison, text.excerpts);
  }
  std::string out;
  if (!words.empty()) {
    out += section("How words split",
                   "As inside a sentence, after a space. Two digits such as C9 are a byte of a "
                   "character that is cut; the mouse shows ids and bytes.",
                   words);
  }
  if (!texts.empty())
    out += section("How the texts split", "A dot is a space, which goes with the word behind it.", texts);
  return out;
}

/// "2.76 times as many": tokens of `more` over those of `fewer` on the same text.
inline std::string times_as_many(const TextMetrics& more, const TextMetrics& fewer) {
  const double ratio = static_cast<double>(more.tokens) / static_cast<double>(std::max<std::uint64_t>(fewer.tokens, 1));
  return ratio < 1.005 ? "practically as many" : fixed(ratio, 2) + " times as many";
}

/// Who wins and by how much, in words.
inline std::string summary(const Comparison& comparison) {
  std::string out;
  const auto name = [&](std::size_t i) { return element("strong", "", escape_html(comparison.tokenizers[i].name)); };
  const Metric &fertility = metric("tokens_per_word"), &context = metric("words_in_context");
  for (const Comparison::Text& text : comparison.texts) {
    const std::size_t best = best_of(text, fertility);
    const TextMetrics& m = text.metrics[best];
    std::string line = "On " + element("em", "", escape_html(text.name)) + ", " + name(best) +
                       (comparison.tokenizers.size() > 1 ? " needs the fewest tokens: " : " needs ") +
                       format_metric(fertility, m.tokens_per_word()) + " per word";
    if (best != 0) {
      const TextMetrics& base = text.metrics[0];
      line += ". " + name(0) + " needs " + times_as_many(base, m) + " (" +
              format_metric(fertility, base.tokens_per_word()) + "), so that a context of 131,072 tokens holds " +
              format_metric(context, base.words_in_context()) + " words instead of " +
              format_metric(context, m.words_in_context());
    } else {
      line += ", so that a context of 131,072 tokens holds " + format_metric(context, m.words_in_context()) + " words";
      if (const auto next = runner_up(text, best)) {
        line += ". Next is " + name(*next) + " with " + times_as_many(text.metrics[*next], m);
      }
    }
    out += element("p", "", line + ".");
  }
  for (const Comparison::Parallel& pairs : comparison.parallel) {
    std::string line = "To say the same, " + element("em", "", escape_html(pairs.first_name)) + " needs ";
    for (std::size_t i = 0; i < comparison.tokenizers.size(); ++i) {
      line += (i == 0                                  ? ""
               : i + 1 == comparison.tokenizers.size() ? " and "
                                                       : ", ") +
              fixed(pairs.metrics[i].premium(), 2) +
              (i == 0 ? " times the tokens of " + element("em", "", escape_html(pairs.second_name)) : "") + " with " +
              name(i);
    }
    out += element("p", "", line + ".");
  }
  return element("div", "class=\"summary\"", out) + "\n";
}

inline std::string definitions() {
  std::string list;
  for (const Metric& metric : kMetrics) {
    list += element("dt", "", escape_html(metric.title)) + element("dd", "", escape_html(metric.definition)) + "\n";
  }
  list +=
      "<dt>MB/s</dt><dd>Millions of source bytes encoded in a second on the machine that made this page. Cold: the "
      "first pass of a new tokenizer, its word cache empty; warm: the best of two more passes; all threads: "
      "warm.</dd>";
  return element("details", "", element("summary", "", "What the figures mean") + element("dl", "", list)) + "\n";
}

}  // namespace detail

/// The page. Bytes of tokens, names and texts are escaped; the first tokenizer is the one that the summary compares
/// with.
inline std::string comparison_html(const Comparison& comparison, const std::string& title = "Tokenizer comparison") {
  std::string body = detail::summary(comparison);
  if (!comparison.texts.empty()) {
    body += detail::metric_section(comparison, metric("tokens_per_word"));
    body += detail::metric_section(comparison, metric("words_in_context"));
  }
  if (!comparison.parallel.empty()) body += detail::premium_section(comparison);
  body += detail::splits_section(comparison);
  if (!comparison.texts.empty()) {
    body += detail::vocabulary_section(comparison) + detail::length_section(comparison) +
            detail::figures_section(comparison);
  }
  body += detail::definitions();
  body += element("p", "class=\"soft\"", std::string("Made by ilme-tokenizer evaluate ") + ILME_VERSION + ".") + "\n";
  return html_page(title, body);
}

}  // namespace ilme::text
