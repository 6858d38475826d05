#include <ilme/text/comparison.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/text/comparison_html.hpp>
#include <ilme/text/comparison_table.hpp>

#include "text/small_tokenizer.hpp"

using namespace ilme;
using namespace ilme::text;
using Catch::Matchers::ContainsSubstring;

namespace {

Comparison compared(const std::vector<std::string>& names, const std::string& text,
                    const std::string& text_name = "az") {
  std::vector<NamedTokenizer> tokenizers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    tokenizers.push_back({names[i], test::small_tokenizer(i == 0 ? "none" : "llama3")});
  }
  return compare(tokenizers, {sample_of_lines(text_name, text), sample_of_lines("en", "sea and mountain\n")},
                 {{"az", "en", {{"dəniz", "the sea"}, {"dağ", "a mountain"}}}}, {"dənizdə", "</span>&\"'<b>\x01\xC9"},
                 {.threads = 2, .speed = false});
}

/// What is wrong with the tags of a page: "" when each is closed in order and every attribute's quotes are.
std::string tag_fault(std::string_view html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at + 1)) {
    std::size_t end = at + 1;
    for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end) {
      if (html[end] == '"') quoted = !quoted;
      if (html[end] == '<') return "a < inside a tag: " + std::string(html.substr(at, 60));
    }
    if (end >= html.size()) return "a tag without end: " + std::string(html.substr(at, 60));
    const std::string_view tag = html.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
    at = end;
    if (name == "!DOCTYPE" || name == "meta" || name == "wbr" || tag.ends_with('/')) continue;
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return "</" + name.substr(1) + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "open at the end: " + open.back();
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("A comparison holds every figure once") {
  const Comparison comparison = compared({"mine", "base"}, "dəniz baba\nana\n");
  const Json json = comparison_json(comparison);
  CHECK(json["texts"][0] == Json{{"name", "az"}, {"documents", 2}, {"bytes", 14}, {"characters", 13}, {"words", 3}});
  REQUIRE(json["results"].size() == 4);
  const Json& row = json["results"][0];
  CHECK(row["name"] == "mine");
  CHECK(row["text"] == "az");
  CHECK(row["tokens"] == 4);
  CHECK(row["tokens_per_word"] == 4.0 / 3.0);
  for (const Metric& metric : kMetrics) CHECK(row.contains(metric.key));
  CHECK_FALSE(row.contains("encode_megabytes_per_second"));
  CHECK(json["results"][3]["name"] == "base");
  CHECK(json["results"][3]["text"] == "en");
  REQUIRE(json["parallel"].size() == 2);
  CHECK(json["parallel"][0]["first"] == "az");
  CHECK(json["parallel"][0]["first_tokens"] == 2);
  CHECK(json["words"][0]["split"] == "dəniz|də");
  CHECK(json["words"][0]["ids"].size() == 2);
  CHECK(json["words"].size() == 4);
}

TEST_CASE("The table is aligned, whatever the names") {
  const std::string table = comparison_table(compared({"özəl", "a-rather-long-name"}, "dəniz baba\nana\n"));
  CHECK_THAT(table, ContainsSubstring("az: 3 words, 14 bytes, 2 documents\n"));
  CHECK_THAT(table, ContainsSubstring("az and en: 2 parallel sentences\n"));
  CHECK_THAT(table, ContainsSubstring("  özəl                 2  dəniz|də\n"));
  std::vector<std::size_t> widths;
  for (const char* name : {"  özəl ", "  a-rather-long-name "}) {
    const std::size_t begin = table.find(name);
    widths.push_back(count_characters(std::string_view(table).substr(begin, table.find('\n', begin) - begin)));
  }
  CHECK(widths[0] == widths[1]);
}

TEST_CASE("Numbers for people") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999.6) == "1,000");
  CHECK(with_commas(1234567) == "1,234,567");
  CHECK(with_commas(-123456) == "-123,456");
  CHECK(format_metric(metric("tokens_per_word"), 1.36) == "1.360");
  CHECK(format_metric(metric("continued_word_rate"), 0.254) == "25.4 %");
}

TEST_CASE("A page is well-formed and needs nothing else") {
  const std::string page = comparison_html(compared({"mine", "base"}, "dəniz baba\nana\n"));
  CHECK(tag_fault(page) == "");
  for (const char* outside : {"<script", "<link", "<img", "http:", "https:", "url(", "@import", "src="}) {
    CHECK_THAT(page, !ContainsSubstring(outside));
  }
  CHECK_THAT(page, ContainsSubstring("<strong>mine</strong> needs the fewest tokens: 1.333 per word"));
  CHECK(count(page, "<svg") == 9);  // four charts for each text, one for the parallel one
  CHECK(count(page, "<details") == 1);
}

TEST_CASE("A page escapes what tokens, names and texts hold") {
  const std::string hostile = "<script>alert(\"1\")</script>'&\xFF\x02";
  const std::string page = comparison_html(compared({hostile, "b"}, "<i>dəniz</i> & \"\x03\xC9\n", hostile), hostile);
  CHECK(tag_fault(page) == "");
  CHECK(is_valid_utf8(page));
  CHECK_THAT(page, !ContainsSubstring("<script"));
  CHECK_THAT(page, ContainsSubstring("&lt;script&gt;"));
  for (const char byte : page) CHECK((static_cast<unsigned char>(byte) >= 0x20 || byte == '\n'));
  CHECK(escape_html("<a href=\"x\">'&\xC9") == "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\uFFFD");
  CHECK(tokens_html({{7, " \xC9"}}) ==
        "<span class=\"tokens\"><span class=\"token k0\" title=\"id 7, 2 bytes: 20 C9\"><i>\u00B7</i><b>C9</b></span>"
        "</span>");
}

TEST_CASE("Pages of one tokenizer, of parallel text only, and of nothing") {
  CHECK(tag_fault(comparison_html(compared({"only"}, "dəniz\n"))) == "");
  Comparison comparison = compared({"mine", "base"}, "dəniz\n");
  comparison.texts.clear();
  comparison.words.clear();
  CHECK(tag_fault(comparison_html(comparison)) == "");
  CHECK(tag_fault(comparison_html({})) == "");
  CHECK(comparison_table({}).empty());
}

TEST_CASE("Charts") {
  CHECK(tag_fault(bar_chart("none", {})) == "");
  CHECK(tag_fault(bar_chart("zero", {{"a", 0.0, "0", 0}})) == "");
  std::vector<ChartPoint> same;
  for (std::size_t i = 0; i < 40; ++i) same.push_back({32768.0, 1.5, "the same place", i});
  CHECK(count(log_point_chart("t", "x", same), "<circle") == 40);
  CHECK(tag_fault(log_point_chart("t", "x", {{0.0, 0.0, "a", 0}})) == "");
  CHECK(tag_fault(percent_line_chart("t", "x", {"0", "1"}, {{{0.0, 0.0}, "a", 0}})) == "");
}
