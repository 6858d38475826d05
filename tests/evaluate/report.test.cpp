#include <cmath>

#include "support/catch_torch.hpp"

#include <ilme/core/error.hpp>
#include <ilme/evaluate/prompts.hpp>
#include <ilme/evaluate/report_html.hpp>
#include <ilme/evaluate/report_json.hpp>
#include <ilme/evaluate/report_table.hpp>

using namespace ilme;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kLog2 = 0.6931471805599453;

/// Two models over three documents in two texts, two questions and two prompts.
evaluate::Report sample(bool compare) {
  evaluate::Report report;
  report.texts = {{"az", "az.txt"}, {"<en>", "en.txt"}};
  report.choices = {
      {{"quiz", "q.jsonl"}, {{"q", {"a", "b"}, 0, "q.jsonl:1"}, {"r", {"a", "b", "c", "d"}, 1, "q.jsonl:2"}}}};
  report.prompts = {{"prompts", "p.txt"}};
  report.settings = {"computed in fp32"};
  for (int m = 0; m < (compare ? 2 : 1); ++m) {
    evaluate::ModelScores model;
    model.folder = m == 0 ? "old" : "new";
    model.tokenizer = m == 0 ? "x" : "y";
    const double scale = m == 0 ? 1 : 0.5;
    model.texts = {{{300 * kLog2 * scale, 50, 100}, {100 * kLog2 * scale, 30, 60}}, {{20 * kLog2 / scale, 10, 40}}};
    evaluate::ChoiceScore wrong{.log_likelihoods = {-5, -1}, .tokens = {1, 1}},
        right{.log_likelihoods = {-5, -1, -7, -8}, .tokens = {1, 1, 1, 1}};
    if (m == 1) wrong.log_likelihoods = {-1, -5};
    evaluate::judge(report.choices[0].items[0], wrong);
    evaluate::judge(report.choices[0].items[1], right);
    model.choices = {{wrong, right}};
    model.answers = {{{{1, 2, 3, 4, 5}, "bir iki üç dörd", true}, {{1, 1, 1, 1, 1}, "a a a a a <b>", m == 1}}};
    report.models.push_back(std::move(model));
  }
  return report;
}

const evaluate::Figure& find(const std::vector<evaluate::TaskFigures>& tasks, const std::string& task,
                             const char* key) {
  for (const auto& candidate : tasks) {
    for (const auto& figure : candidate.figures) {
      if (candidate.name == task && figure.measure == &evaluate::measure(key)) return figure;
    }
  }
  FAIL("no figure " << key << " of " << task);
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("a ratio estimate has the standard error of a mean when the denominators are 1") {
  const std::vector<double> values{1, 0, 0, 1, 1}, ones(5, 1.0);
  const auto mean = evaluate::mean_estimate(values);
  CHECK(mean.value == Catch::Approx(0.6));
  CHECK(mean.standard_error == Catch::Approx(std::sqrt(0.3 / 5)));  // sample variance 0.3
  const auto ratio = evaluate::ratio_estimate(std::vector<double>{2, 6, 1}, std::vector<double>{1, 3, 2});
  CHECK(ratio.value == Catch::Approx(1.5));
  CHECK(ratio.standard_error == Catch::Approx(std::sqrt(1.5 * (0.25 + 2.25 + 4)) / 6));
  CHECK(std::isnan(evaluate::mean_estimate(std::vector<double>{3}).standard_error));
}

TEST_CASE("repeated and distinct n-grams") {
  const std::vector<std::int64_t> loop{1, 2, 1, 2, 1, 2, 1}, none{1, 2, 3, 4, 5};
  CHECK(evaluate::repeated_ngrams(loop, 4) == Catch::Approx(0.5));  // 1212 2121 1212 2121
  CHECK(evaluate::repeated_ngrams(loop, 1) == Catch::Approx(1 - 2.0 / 7));
  CHECK(evaluate::repeated_ngrams(none, 4) == 0);
  CHECK(evaluate::repeated_ngrams(none, 6) == 0);
  CHECK(evaluate::repeated_ngrams({}, 4) == 0);
  const std::vector<std::vector<std::int64_t>> both{loop, none};
  CHECK(evaluate::distinct_ngrams(both, 1) == Catch::Approx(5.0 / 12));
  CHECK(evaluate::distinct_ngrams(both, 2) == Catch::Approx(5.0 / 12));  // 12 21 23 34 45
  evaluate::WordNumbers words;
  CHECK(words("bir  iki\nbir") == std::vector<std::int64_t>{0, 1, 0});
  CHECK(words("üç iki") == std::vector<std::int64_t>{2, 1});
}

TEST_CASE("figures of one model") {
  const auto report = sample(false);
  const auto tasks = evaluate::figures(report);
  REQUIRE(tasks.size() == 5);  // az, <en>, all, quiz, prompts
  CHECK(tasks[0].note == "2 documents, 160 bytes");
  CHECK(find(tasks, "az", "bits_per_byte").values[0].value == Catch::Approx(400.0 / 160));
  CHECK(find(tasks, "all", "bits_per_byte").values[0].value == Catch::Approx(420.0 / 200));
  CHECK(find(tasks, "az", "perplexity").values[0].value == Catch::Approx(std::exp2(400.0 / 80)));
  CHECK(find(tasks, "az", "bytes_per_token").values[0].value == Catch::Approx(2));
  CHECK(find(tasks, "quiz", "accuracy").values[0].value == Catch::Approx(0.5));
  CHECK(tasks[3].note == "2 questions, chance 37.5 %");
  CHECK(find(tasks, "prompts", "repeated_word_4grams").values[0].value == Catch::Approx((0 + 1.0 / 3) / 2));
  CHECK(find(tasks, "prompts", "repeated_token_4grams").values[0].value == Catch::Approx(0.25));
  CHECK(find(tasks, "prompts", "ended").values[0].value == Catch::Approx(0.5));
  CHECK(find(tasks, "prompts", "answer_tokens").values[0].value == Catch::Approx(5));
  CHECK(find(tasks, "prompts", "distinct_1").values[0].value == Catch::Approx(6.0 / 10));
  const std::string table = evaluate::report_table(report, tasks);
  CHECK_THAT(table, ContainsSubstring("2.5000 \u00B1 ") && ContainsSubstring("50.0 %"));
  const Json json = evaluate::report_json(report, tasks);
  CHECK(json["texts"][0]["bits_per_byte"].get<double>() == Catch::Approx(2.5));
  CHECK(json["texts"][0]["text"] == "az.txt");
  CHECK(json["texts"][2]["name"] == "all");
  CHECK(json["texts"][2]["tokens"] == 90);
  CHECK_FALSE(json.contains("changes"));
}

TEST_CASE("a comparison gives the paired difference, and its verdict beyond 1.96 standard errors") {
  const auto report = sample(true);
  const auto tasks = evaluate::figures(report);
  const auto& bits = find(tasks, "az", "bits_per_byte");
  REQUIRE(bits.difference);
  CHECK(bits.difference->value == Catch::Approx(-1.25));
  // Differences -150 and -50 bits over 100 and 60 bytes: residuals -25 and 25.
  CHECK(bits.difference->standard_error == Catch::Approx(std::sqrt(2.0 * 1250) / 160));
  CHECK(bits.verdict() == std::string("better"));
  CHECK(find(tasks, "<en>", "bits_per_byte").verdict() == std::string());  // one document: no standard error
  CHECK_FALSE(find(tasks, "az", "perplexity").difference);                 // other tokenizers
  CHECK(find(tasks, "quiz", "accuracy").difference->value == Catch::Approx(0.5));
  CHECK(find(tasks, "quiz", "accuracy").verdict() == std::string());
  const Json json = evaluate::report_json(report, tasks);
  CHECK(json["model"] == "new");
  CHECK(json["baseline"]["model"] == "old");
  CHECK(json["changes"][0]["change"].get<double>() == Catch::Approx(-1.25));
  CHECK_THAT(evaluate::report_table(report, tasks),
             ContainsSubstring("before") && ContainsSubstring("-1.2500 \u00B1 "));
  const std::string html = evaluate::report_html(report, tasks);
  CHECK_THAT(html, ContainsSubstring("<svg") && ContainsSubstring("&lt;en&gt;") && ContainsSubstring("a a &lt;b&gt;"));
  CHECK_THAT(html, !ContainsSubstring("<en>") && !ContainsSubstring("<script") && !ContainsSubstring("http"));
}

TEST_CASE("prompts are read from JSON") {
  const auto read = [](const char* line) { return evaluate::read_prompt(parse_json(line, "p:1"), "p:1"); };
  CHECK(read(R"({"prompt": "Bir gün"})").text == "Bir gün");
  const auto chat =
      read(R"({"messages": [{"role": "user", "content": "salam"}, {"role": "assistant", "content": "x"}]})");
  REQUIRE(chat.messages.size() == 1);
  CHECK_THROWS_WITH(read(R"({"text": "x"})"), Catch::Matchers::StartsWith("p:1") && ContainsSubstring("prompt"));
  CHECK_THROWS_AS(read(R"({"prompt": "x", "messages": []})"), InputError);
  CHECK_THROWS_AS(read(R"({"prompt": 3})"), InputError);
  CHECK_THROWS_AS(read(R"({"messages": [{"role": "assistant", "content": "x"}]})"), InputError);
}
