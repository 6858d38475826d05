#include <ilme/data/text_blocks.hpp>

#include <string>
#include <vector>

#include <catch2/catch_all.hpp>

#include <ilme/core/file.hpp>
#include <ilme/text/word_counter.hpp>

#include "support/temporary.hpp"

using namespace ilme;

namespace {

std::vector<std::pair<std::string, std::uint64_t>> count(data::TextBlocks blocks, std::size_t threads) {
  const auto pre_tokenizer = text::PreTokenizer::named("llama3");
  std::vector<text::WordCounter> counters(threads);
  data::for_each_text(blocks, threads, [&](std::size_t worker, std::string_view text) {
    text::count_words(pre_tokenizer, text, counters[worker]);
  });
  text::WordCounter all;
  for (const auto& counter : counters) all.add(counter);
  std::vector<std::pair<std::string, std::uint64_t>> words;
  all.for_each([&](std::string_view word, std::uint64_t count) { words.emplace_back(word, count); });
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace

TEST_CASE("Blocks hold whole lines and do not change the counts") {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "sətir " + std::to_string(i * i) + (i % 7 == 0 ? "\r\n\n" : " son\n");
  text += "uzun sətir" + std::string(300, 'x') + " sonsuz";
  write_file(folder / "a.txt", text);
  write_file(folder / "b.txt", "sətir\n");
  write_file(folder / "empty.txt", "");
  const std::vector<std::filesystem::path> files = {folder / "a.txt", folder / "empty.txt", folder / "b.txt"};
  const auto expected = count(data::TextBlocks(files), 1);
  CHECK(expected.size() > 400);
  std::uint64_t read = 0;
  for (const std::size_t threads : {1, 3}) {
    CHECK(count(data::TextBlocks(
                    files, "text", [&](std::uint64_t done) { read = done; }, 64),
                threads) == expected);
    CHECK(read == text.size() + 7);
  }
  data::TextBlocks blocks(files, "text", {}, 64);
  std::string joined;
  for (data::TextBlocks::Block block; blocks.next(block);) joined += block.bytes;
  CHECK(joined == text + "sətir\n");
  CHECK(blocks.bytes_total() == joined.size());
}

TEST_CASE("JSON lines give their field, and errors their line") {
  using Catch::Matchers::ContainsSubstring;
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "{\"id\": 1, \"text\": \"bir iki\\nüç\"}\n\n";
  write_file(folder / "a.jsonl", text);
  CHECK(count(data::TextBlocks({folder / "a.jsonl"}, "text", {}, 100), 2) ==
        std::vector<std::pair<std::string, std::uint64_t>>{{"\n", 40}, {" iki", 40}, {"bir", 40}, {"üç", 40}});
  write_file(folder / "a.jsonl", text + "{\"id\": 1}\n");
  CHECK_THROWS_MATCHES(
      count(data::TextBlocks({folder / "a.jsonl"}, "text", {}, 100), 2), InputError,
      Catch::Matchers::MessageMatches(ContainsSubstring("a.jsonl:81") && ContainsSubstring("\"text\"")));
  CHECK_THROWS_AS(data::TextBlocks({folder / "absent.txt"}), InputError);
  write_file(folder / "long.txt", "bir\n" + std::string(1000, 'a') + "\n");
  CHECK_THROWS_MATCHES(count(data::TextBlocks({folder / "long.txt"}, "text", {}, 64, 500), 1), InputError,
                       Catch::Matchers::MessageMatches(ContainsSubstring("long.txt:2: the line is longer than 500")));
  CHECK_THROWS_AS(data::TextBlocks({}), InputError);
}
