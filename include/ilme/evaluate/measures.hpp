/// The measures of an evaluation and their figures: what tables, pages and JSON show, in their order.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ilme/evaluate/report.hpp>
#include <ilme/evaluate/statistics.hpp>
#include <ilme/text/metric_list.hpp>
#include <ilme/text/number_text.hpp>

namespace ilme::evaluate {

enum class Part { text, choices, answers };

struct Measure {
  const char* key;    // in JSON
  const char* title;  // for tables and pages
  Part part;
  text::Better better;
  text::MetricFormat format;
  int decimals;
  bool charted;            // the page shows bars
  const char* definition;  // for people; ends with the source, if there is one
};

inline constexpr std::array<Measure, 14> kMeasures = {{
    {"bits_per_byte", "bits per byte", Part::text, text::Better::lower, text::MetricFormat::ratio, 4, true,
     "Negative log2-likelihood of every token of a document given the start token and what precedes it in the window, "
     "summed over documents and divided by their UTF-8 bytes. Comparable between tokenizers."},
    {"perplexity", "perplexity", Part::text, text::Better::lower, text::MetricFormat::ratio, 2, false,
     "exp of the mean loss of a token. Comparable for one tokenizer only."},
    {"bytes_per_token", "bytes per token", Part::text, text::Better::higher, text::MetricFormat::ratio, 3, false,
     "UTF-8 bytes of the text over its tokens."},
    {"accuracy", "accuracy", Part::choices, text::Better::higher, text::MetricFormat::percent, 1, false,
     "Questions whose right choice has the highest log-likelihood, summed over its tokens. (acc of "
     "lm-evaluation-harness)"},
    {"accuracy_characters", "accuracy, by character", Part::choices, text::Better::higher, text::MetricFormat::percent,
     1, false,
     "The same with log-likelihoods divided by the characters of the choice. (acc_norm of "
     "lm-evaluation-harness)"},
    {"accuracy_bytes", "accuracy, by byte", Part::choices, text::Better::higher, text::MetricFormat::percent, 1, true,
     "Questions whose right choice has the highest log-likelihood divided by its UTF-8 bytes, so that longer choices "
     "are "
     "not at a disadvantage. (Gao 2021, Multiple Choice Normalization in LM Evaluation)"},
    {"accuracy_tokens", "accuracy, by token", Part::choices, text::Better::higher, text::MetricFormat::percent, 1,
     false,
     "The same with log-likelihoods divided by the tokens of the choice. (Brown et al. 2020, Language Models are "
     "Few-Shot Learners)"},
    {"repeated_word_4grams", "repeated 4-grams of words", Part::answers, text::Better::lower,
     text::MetricFormat::percent, 1, true,
     "Share of an answer's 4-grams that occurred in it before, over words between whitespace, mean of the answers. "
     "(seq-rep-4 of Welleck et al. 2020, Neural Text Generation with Unlikelihood Training, there over tokens)"},
    {"repeated_token_4grams", "repeated 4-grams of tokens", Part::answers, text::Better::lower,
     text::MetricFormat::percent, 1, false,
     "The same over tokens. Comparable for one tokenizer only. (seq-rep-4 of "
     "Welleck et al. 2020)"},
    {"distinct_1", "distinct words", Part::answers, text::Better::higher, text::MetricFormat::percent, 1, false,
     "Different words of all answers together over all their words. (distinct-1 of Li et al. 2016, A "
     "Diversity-Promoting Objective Function for Neural Conversation Models)"},
    {"distinct_2", "distinct pairs of words", Part::answers, text::Better::higher, text::MetricFormat::percent, 1,
     false,
     "Different pairs of neighbouring words of all answers together over all their words. (distinct-2 of Li et "
     "al. 2016)"},
    {"ended", "answers that end", Part::answers, text::Better::higher, text::MetricFormat::percent, 1, false,
     "Share of the answers that end with a stop token before the limit of tokens."},
    {"answer_tokens", "tokens of an answer", Part::answers, text::Better::neither, text::MetricFormat::ratio, 1, false,
     "Mean, the stop token not counted."},
    {"answer_bytes", "bytes of an answer", Part::answers, text::Better::neither, text::MetricFormat::ratio, 1, false,
     "Mean of its UTF-8."},
}};

/// The entry of kMeasures with `key`, which must be one of them.
inline constexpr const Measure& measure(std::string_view key) {
  for (const Measure& candidate : kMeasures) {
    if (key == candidate.key) return candidate;
  }
  return kMeasures[0];
}

/// "3.3012", "45.1 %".
inline std::string format_value(const Measure& measure, double value) {
  if (measure.format == text::MetricFormat::percent) return text::fixed(100 * value, measure.decimals) + " %";
  return text::fixed(value, measure.decimals);
}

/// "-1.2034", "+4.5 points".
inline std::string format_change(const Measure& measure, double value) {
  const bool percent = measure.format == text::MetricFormat::percent;
  std::string text = text::fixed(std::abs(percent ? 100 * value : value), measure.decimals);
  if (text.find_first_not_of("0.") != std::string::npos) text.insert(0, value < 0 ? "-" : "+");
  return text + (percent ? " points" : "");
}

/// " ± 0.0123", or "" when there is no standard error.
inline std::string format_error(const Measure& measure, const Estimate& estimate) {
  if (std::isnan(estimate.standard_error)) return "";
  const double scale = measure.format == text::MetricFormat::percent ? 100 : 1;
  return " \u00B1 " + text::fixed(scale * estimate.standard_error, measure.decimals);
}

/// A measure of one task, for each model; with two models the second less the first.
struct Figure {
  const Measure* measure;
  std::vector<Estimate> values;
  std::optional<Estimate> difference;  ///< none: not to be compared

  /// "better", "worse", or "" within 1.96 standard errors of the paired difference (95 %) and where neither is better.
  const char* verdict() const {
    if (!difference || measure->better == text::Better::neither) return "";
    if (!(std::abs(difference->value) > 1.96 * difference->standard_error)) return "";
    return (difference->value < 0) == (measure->better == text::Better::lower) ? "better" : "worse";
  }
};

/// "-1.2034 ± 0.0123 (-36.5 %)", "+4.5 points ± 1.2", or "not comparable".
inline std::string format_difference(const Figure& figure) {
  if (!figure.difference) return "not comparable";
  std::string text =
      format_change(*figure.measure, figure.difference->value) + format_error(*figure.measure, *figure.difference);
  const double share = 100 * figure.difference->value / figure.values[0].value;
  if (figure.measure->format == text::MetricFormat::ratio && std::isfinite(share)) {
    text += std::string(" (") + (share > 0 ? "+" : "") + text::fixed(share, 1) + " %)";
  }
  return text;
}

/// The figures of one task.
struct TaskFigures {
  Part part;
  std::string name, note;  ///< note: "300 documents, 85,305 bytes"
  std::vector<Figure> figures;
};

namespace detail {

/// The ratio of sums of the pairs (x, y) that `pair` gives for each item, for each model, and the paired difference
/// when the models share y.
template <class Item, class Pair>
Figure ratio_figure(const char* key, const std::vector<std::vector<Item>>& models, Pair&& pair) {
  Figure figure{&measure(key), {}, {}};
  std::vector<std::vector<double>> xs, ys;
  for (const std::vector<Item>& items : models) {
    std::vector<double>&x = xs.emplace_back(), &y = ys.emplace_back();
    for (const Item& item : items) {
      const std::pair<double, double> values = pair(item);
      x.push_back(values.first);
      y.push_back(values.second);
    }
    figure.values.push_back(ratio_estimate(x, y));
  }
  if (models.size() != 2) return figure;
  figure.difference = Estimate{figure.values[1].value - figure.values[0].value};
  if (ys[0] == ys[1]) {
    for (std::size_t i = 0; i < xs[0].size(); ++i) xs[1][i] -= xs[0][i];
    figure.difference->standard_error = ratio_estimate(xs[1], ys[0]).standard_error;
  }
  return figure;
}

inline TaskFigures text_figures(const std::string& name, const std::vector<std::vector<DocumentScore>>& models,
                                bool one_tokenizer) {
  TextScore total;
  for (const DocumentScore& document : models[0]) total.add(document);
  TaskFigures task{Part::text,
                   name,
                   text::with_commas(static_cast<double>(total.documents)) + " documents, " +
                       text::with_commas(static_cast<double>(total.bytes)) + " bytes",
                   {}};
  task.figures.push_back(ratio_figure("bits_per_byte", models, [](const DocumentScore& d) {
    return std::pair(d.negative_log_likelihood / std::log(2.0), static_cast<double>(d.bytes));
  }));
  Figure perplexity = ratio_figure("perplexity", models, [](const DocumentScore& d) {
    return std::pair(d.negative_log_likelihood, static_cast<double>(d.tokens));
  });
  for (Estimate& mean_loss : perplexity.values) {
    mean_loss.value = std::exp(mean_loss.value);
    mean_loss.standard_error *= mean_loss.value;  // the derivative of exp
  }
  if (perplexity.difference) {
    perplexity.difference = Estimate{perplexity.values[1].value - perplexity.values[0].value};
    if (!one_tokenizer) perplexity.difference.reset();
  }
  task.figures.push_back(std::move(perplexity));
  task.figures.push_back(ratio_figure("bytes_per_token", models, [](const DocumentScore& d) {
    return std::pair(static_cast<double>(d.bytes), static_cast<double>(d.tokens));
  }));
  return task;
}

inline TaskFigures choice_figures(const std::string& name, const std::vector<std::vector<ChoiceScore>>& models) {
  double chance = 0;
  for (const ChoiceScore& score : models[0]) chance += score.chance / static_cast<double>(models[0].size());
  TaskFigures task{Part::choices,
                   name,
                   text::with_commas(static_cast<double>(models[0].size())) + " questions, chance " +
                       text::fixed(100 * chance, 1) + " %",
                   {}};
  const char* keys[] = {"accuracy", "accuracy_characters", "accuracy_bytes", "accuracy_tokens"};
  for (std::size_t n = 0; n < kChoiceNorms.size(); ++n) {
    task.figures.push_back(ratio_figure(
        keys[n], models, [&](const ChoiceScore& score) { return std::pair(score.right[n] ? 1.0 : 0.0, 1.0); }));
  }
  return task;
}

inline TaskFigures answer_figures(const std::string& name, const std::vector<std::vector<Answer>>& models,
                                  bool one_tokenizer) {
  TaskFigures task{Part::answers, name, text::with_commas(static_cast<double>(models[0].size())) + " prompts", {}};
  WordNumbers words;
  const auto mean = [&](const char* key, auto value) {
    task.figures.push_back(
        ratio_figure(key, models, [&](const Answer& answer) { return std::pair<double, double>(value(answer), 1.0); }));
  };
  mean("repeated_word_4grams", [&](const Answer& a) { return repeated_ngrams(words(a.text), 4); });
  mean("repeated_token_4grams", [](const Answer& a) { return repeated_ngrams(a.ids, 4); });
  if (!one_tokenizer) task.figures.back().difference.reset();
  for (const std::size_t n : {1, 2}) {
    Figure figure{&measure(n == 1 ? "distinct_1" : "distinct_2"), {}, {}};
    for (const std::vector<Answer>& answers : models) {
      std::vector<std::vector<std::int64_t>> numbers;
      for (const Answer& answer : answers) numbers.push_back(words(answer.text));
      figure.values.push_back({distinct_ngrams(numbers, n)});
    }
    if (models.size() == 2) figure.difference = Estimate{figure.values[1].value - figure.values[0].value};
    task.figures.push_back(std::move(figure));
  }
  mean("ended", [](const Answer& a) { return a.ended ? 1.0 : 0.0; });
  mean("answer_tokens", [](const Answer& a) { return static_cast<double>(a.ids.size()); });
  mean("answer_bytes", [](const Answer& a) { return static_cast<double>(a.text.size()); });
  return task;
}

}  // namespace detail

/// The figures of every task; texts and questions of several tasks are summed up in one called "all" behind them.
inline std::vector<TaskFigures> figures(const Report& report) {
  bool one_tokenizer = true;
  for (const ModelScores& model : report.models) one_tokenizer &= model.tokenizer == report.models[0].tokenizer;
  std::vector<TaskFigures> tasks;
  // Calls `make(name, the models' items)` for each task and for all of them.
  const auto each = [&](std::size_t count, auto name, auto scores, bool with_all, auto make) {
    using Items = std::decay_t<decltype(scores(report.models[0])[0])>;
    std::vector<Items> all(report.models.size());
    for (std::size_t t = 0; t < count; ++t) {
      std::vector<Items> items;
      for (std::size_t m = 0; m < report.models.size(); ++m) {
        items.push_back(scores(report.models[m])[t]);
        all[m].insert(all[m].end(), items[m].begin(), items[m].end());
      }
      tasks.push_back(make(name(t), items));
    }
    if (with_all && count > 1) tasks.push_back(make("all", all));
  };
  each(
      report.texts.size(), [&](std::size_t t) { return report.texts[t].name; },
      [](const ModelScores& model) -> const auto& { return model.texts; }, true,
      [&](const std::string& name, const auto& items) { return detail::text_figures(name, items, one_tokenizer); });
  each(
      report.choices.size(), [&](std::size_t t) { return report.choices[t].source.name; },
      [](const ModelScores& model) -> const auto& { return model.choices; }, true, detail::choice_figures);
  each(
      report.prompts.size(), [&](std::size_t t) { return report.prompts[t].name; },
      [](const ModelScores& model) -> const auto& { return model.answers; }, false,
      [&](const std::string& name, const auto& items) { return detail::answer_figures(name, items, one_tokenizer); });
  return tasks;
}

}  // namespace ilme::evaluate
