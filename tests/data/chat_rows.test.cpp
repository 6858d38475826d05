#include <ilme/data/chat_rows.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/prefetched.hpp>

#include "data/loader_support.hpp"
#include "data/tiny_tokenizer.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

static_assert(RowSource<ChatRows>);
static_assert(BatchSource<Batched<ChatRows>>);

namespace {

using Encoded = std::vector<text::EncodedChat>;
using Row = std::vector<std::int64_t>;

Row row_of(const std::vector<std::int64_t>& values, std::int64_t row, std::int64_t length) {
  return {values.begin() + row * length, values.begin() + (row + 1) * length};
}

}  // namespace

TEST_CASE("padding goes by position, not by id") {  // case sft-pad-is-eos; its labels are one step to the right of ours
  const Encoded samples = {{{1, 11, 12, 13, 2, 14, 2}, {0, 0, 0, 1, 1, 0, 1}},
                           {{1, 21, 22, 2}, {0, 0, 1, 1}},
                           {{1, 31, 2, 2, 32}, {0, 1, 1, 0, 1}}};
  auto batches = chat_rows(ChatExamples(samples, 7), {.padding_id = 2}) | batched(3);
  CHECK(batches.batches_per_epoch() == 1);
  const PackedBatch batch = *batches.next();
  CHECK(batch.token_count == 8);
  std::map<Row, std::pair<Row, Row>> rows;  // input_ids -> labels, position_ids
  for (std::int64_t row = 0; row < 3; ++row) {
    rows[row_of(batch.input_ids, row, 7)] = {row_of(batch.labels, row, 7), row_of(batch.position_ids, row, 7)};
  }
  CHECK(rows.at({1, 11, 12, 13, 2, 14, 2}) ==
        std::pair(Row{-100, -100, 13, 2, -100, 2, -100}, Row{0, 1, 2, 3, 4, 5, 6}));
  CHECK(rows.at({1, 21, 22, 2, 2, 2, 2}) ==
        std::pair(Row{-100, 22, 2, -100, -100, -100, -100}, Row{0, 1, 2, 3, 0, 1, 2}));
  CHECK(rows.at({1, 31, 2, 2, 32, 2, 2}) ==
        std::pair(Row{31, 2, -100, 32, -100, -100, -100}, Row{0, 1, 2, 3, 4, 0, 1}));
}

TEST_CASE("truncation cuts ids and mask alike, and what has no label left is dropped and counted") {
  // The lengths of case sft-chat-ids-and-mask, multi_turn: 58 tokens, trained are 37, 38, 56 and 57.
  text::EncodedChat turns;
  turns.ids.resize(58);
  turns.loss_mask.resize(58);
  std::iota(turns.ids.begin(), turns.ids.end(), 300U);
  for (const std::size_t t : {37, 38, 56, 57}) turns.loss_mask[t] = 1;
  const text::EncodedChat other{{7, 8}, {0, 1}};
  for (const auto& [limit, trained] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{10, 0}, {37, 0}, {38, 1}, {57, 3}, {58, 4}, {100, 4}}) {
    CAPTURE(limit);
    const ChatExamples examples({turns, other}, limit, {{0, 3}, {0, 4}}, {{"a.jsonl", "line"}});
    const ChatReport& report = examples.report();
    CHECK(report.read == 2);
    CHECK(report.kept == (trained > 0 ? 2 : 1));
    CHECK(report.dropped == (trained > 0 ? 0 : 1));
    CHECK(report.truncated == (trained > 0 && limit < 58 ? 1 : 0));
    CHECK(report.trained_tokens == trained + 1);
    CHECK(report.dropped_lines == (trained > 0 ? std::vector<std::string>{} : std::vector<std::string>{"a.jsonl:3"}));
    auto batches = chat_rows(examples, {.pack = false}) | batched(2, {.epochs = 1});
    CHECK(batches.next()->token_count == trained + 1);
  }
  CHECK_THROWS_MATCHES(ChatExamples({turns}, 37, {{0, 3}}, {{"a.jsonl", "line"}}), InputError,
                       MessageMatches(ContainsSubstring("a.jsonl:3")));
  CHECK_THROWS_AS(ChatExamples({}, 37), InputError);
  CHECK_THROWS_AS(ChatExamples({turns}, 0), InputError);
  CHECK_THROWS_AS(ChatExamples({{{1, 2}, {1}}}, 10), InputError);
  CHECK_THROWS_AS(ChatExamples({{{1}, {1}}, {{}, {}}}, 10), InputError);  // a first token is nobody's label
}

TEST_CASE("property: an epoch has every conversation once and whole, and all epochs as many rows") {
  const std::uint64_t seed = GENERATE(range(0, 15));
  const auto length = static_cast<std::int64_t>(8 + random_bits(seed, 1) % 60);
  const std::size_t count = 1 + static_cast<std::size_t>(random_bits(seed, 2) % 80);
  Encoded encoded;
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    text::EncodedChat chat;
    const auto size = static_cast<std::size_t>(2 + random_bits(seed, 3, i) % static_cast<std::uint64_t>(length - 1));
    for (std::size_t t = 0; t < size; ++t) {
      chat.ids.push_back(static_cast<std::uint32_t>(1000 * (i + 1) + t));
      chat.loss_mask.push_back(t > 0 && random_bits(seed, 4, i, t) % 2);
    }
    chat.loss_mask.back() = 1;
    total += size;
    encoded.push_back(std::move(chat));
  }
  auto batches = chat_rows(ChatExamples(encoded, length), {.seed = seed}) | batched(2);
  const std::int64_t rows = chat_rows(ChatExamples(encoded, length), {.seed = seed}).rows_per_epoch();
  CHECK(rows >= static_cast<std::int64_t>((total + length - 1) / length));
  CHECK(rows <= static_cast<std::int64_t>(2 * total / length + 1));  // best-fit never leaves two rows half empty
  std::vector<std::vector<PackedBatch>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<std::size_t> seen;
    std::int64_t labels = 0, expected_labels = 0;
    epochs.push_back(take(batches, batches.batches_per_epoch()));
    for (const auto& batch : epochs.back()) {
      const auto& offsets = batch.sequence_offsets;
      for (std::size_t part = 0; part + 1 < offsets.size(); ++part) {
        const auto first = static_cast<std::size_t>(offsets[part]),
                   size = static_cast<std::size_t>(offsets[part + 1]) - first;
        const std::int64_t id = batch.input_ids[first];
        if (id == 0) {
          for (std::size_t t = 0; t < size; ++t) REQUIRE(batch.labels[first + t] == kIgnoredLabel);
          continue;
        }
        const auto which = static_cast<std::size_t>(id / 1000 - 1);
        seen.insert(which);
        REQUIRE(size == encoded[which].ids.size());
        for (std::size_t t = 0; t < size; ++t) {
          REQUIRE(batch.input_ids[first + t] == encoded[which].ids[t]);
          REQUIRE(batch.position_ids[first + t] == static_cast<std::int64_t>(t));
          const bool trained = t + 1 < size && encoded[which].loss_mask[t + 1];
          REQUIRE(batch.labels[first + t] == (trained ? std::int64_t{encoded[which].ids[t + 1]} : kIgnoredLabel));
          expected_labels += trained;
        }
      }
      labels += batch.token_count;
    }
    CHECK(labels == expected_labels);
    CHECK(seen.size() == count);
    CHECK(std::set<std::size_t>(seen.begin(), seen.end()).size() == count);
  }
  if (rows > 8) CHECK(epochs[0] != epochs[1]);
  // Stopped in the middle of the second epoch, it goes on exactly.
  auto first = chat_rows(ChatExamples(encoded, length), {.seed = seed}) | batched(2) | prefetched(2);
  const std::int64_t stop = batches.batches_per_epoch() + batches.batches_per_epoch() / 2;
  take(first, stop);
  auto second = chat_rows(ChatExamples(encoded, length), {.seed = seed}) | batched(2);
  second.restore(first.state());
  for (auto batch = epochs[1].begin() + batches.batches_per_epoch() / 2; batch != epochs[1].end(); ++batch) {
    REQUIRE(second.next() == *batch);
  }
  encoded[0].loss_mask.back() ^= 1;
  encoded[0].loss_mask.push_back(1);
  encoded[0].ids.push_back(5);
  auto changed = chat_rows(ChatExamples(encoded, length + 1), {.seed = seed}) | batched(2);
  CHECK_THROWS_AS(changed.restore(first.state()), InputError);
}

TEST_CASE("chat files are encoded with the template, and faults name file and line") {
  const TemporaryFolder folder;
  const auto file = folder / "chat.jsonl";
  const text::Tokenizer tokenizer = tiny_tokenizer();
  put_file(file, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]})"
                 "\n\n"
                 R"({"messages": [{"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]})"
                 "\n");
  const ChatExamples examples = load_chat_examples({file}, tokenizer, {.sequence_length = 64});
  REQUIRE(examples.size() == 2);
  const text::EncodedChat& chat = examples[0];
  CHECK(std::count(chat.ids.begin(), chat.ids.end(), 256U) == 1);
  CHECK(std::count(chat.loss_mask.begin(), chat.loss_mask.end(), 1) == 3);
  CHECK(std::vector<std::uint32_t>(chat.ids.end() - 3, chat.ids.end()) == std::vector<std::uint32_t>{'b', 'c', 260});
  CHECK(examples.report().trained_tokens == 5);

  put_file(file, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]})"
                 "\n"
                 R"({"messages": [{"role": "user", "content": "alone"}]})"
                 "\n");
  CHECK_THROWS_MATCHES(load_chat_examples({file}, tokenizer), InputError,
                       MessageMatches(ContainsSubstring("chat.jsonl:2")));
  const ChatExamples kept = load_chat_examples({file}, tokenizer, {.no_assistant = NoAssistant::drop});
  CHECK(kept.report().dropped_lines == std::vector<std::string>{file.string() + ":2"});

  for (const char* line :
       {"{\"messages\": 5}", "{\"text\": \"x\"}", "{", "5", R"({"messages": [{"role": "assistant"}]})"}) {
    put_file(file, std::string(line) + "\n");
    CHECK_THROWS_MATCHES(load_chat_examples({file}, tokenizer), InputError,
                         MessageMatches(ContainsSubstring("chat.jsonl:1")));
  }
  put_file(file, "\n");
  CHECK_THROWS_MATCHES(load_chat_examples({file}, tokenizer), InputError,
                       MessageMatches(ContainsSubstring("no conversations")));
  put_file(folder / "chat.txt", "plain\n");
  CHECK_THROWS_AS(load_chat_examples({folder / "chat.txt"}, tokenizer), InputError);
}
