#include <ilme/data/prepare.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <ilme/data/token_shards.hpp>

#include "data/loader_support.hpp"
#include "data/tiny_tokenizer.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> texts(const text::Tokenizer& tokenizer, const fs::path& folder) {
  const TokenShards shards(folder);
  std::vector<std::string> out;
  for (std::uint64_t i = 0; i < shards.document_count(); ++i) {
    const auto ids = shards.document(i).to_vector();
    REQUIRE(ids.front() == 256);
    REQUIRE(ids.back() == 257);
    out.push_back(tokenizer.decode(std::span(ids).subspan(1, ids.size() - 2)));
    REQUIRE(shards.document_bytes(i) == out.back().size());
  }
  return out;
}

std::vector<std::string> sentences(int count) {
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i) documents.push_back(concat("sənəd ", i, " ", mix64(static_cast<std::uint64_t>(i))));
  return documents;
}

void write_lines(const fs::path& file, const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  put_file(file, text);
}

}  // namespace

TEST_CASE("documents become shards in order, with BOS and EOS, for any number of threads") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  auto documents = sentences(3000);
  documents[7] = "stray \xFF bytes <|eot_id|>";
  write_lines(folder / "a.txt", documents);
  std::string fingerprint;
  for (const std::size_t threads : {1, 2, 5}) {
    const fs::path out = folder / concat("out-", threads);
    const PrepareReport report =
        prepare(tokenizer, {.inputs = {folder / "a.txt"}, .output = out, .shard_tokens = 20000, .threads = threads});
    CHECK(texts(tokenizer, out) == documents);
    CHECK(report.train.documents() == 3000);
    CHECK(report.train.shards.size() > 2);
    CHECK_FALSE(report.validation);
    const TokenShards shards(out);
    CHECK(shards.vocabulary().bos_id == 256U);
    CHECK_NOTHROW(shards.require_tokenizer(tokenizer.fingerprint()));
    CHECK((fingerprint.empty() || fingerprint == shards.fingerprint()));
    fingerprint = shards.fingerprint();
    CHECK_FALSE(fs::exists(out / ".unfinished"));
  }
  prepare(tiny_tokenizer(false), {.inputs = {folder / "a.txt"}, .output = folder / "bare"});
  CHECK(tokenizer.decode(TokenShards(folder / "bare").document(0).to_vector()) == documents[0]);

  // A model's BOS stands in where the tokenizer names none, and nowhere else.
  prepare(tiny_tokenizer(false), {.inputs = {folder / "a.txt"}, .output = folder / "model", .bos_id = 65U});
  CHECK(TokenShards(folder / "model").vocabulary().bos_id == 65U);
  CHECK(TokenShards(folder / "model").document(0)[0] == 65U);
  prepare(tokenizer, {.inputs = {folder / "a.txt"}, .output = folder / "own", .bos_id = 65U});
  CHECK(TokenShards(folder / "own").document(0)[0] == 256U);
}

TEST_CASE("a share is held out by the documents' hash") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  auto documents = sentences(2000);
  documents[1999] = documents[3];  // an equal document goes the same way
  write_lines(folder / "a.txt", documents);
  const PrepareReport report =
      prepare(tokenizer, {.inputs = {folder / "a.txt"}, .output = folder / "out", .validation = 0.1});
  REQUIRE(report.validation);
  CHECK(report.validation->documents() > 140);
  CHECK(report.validation->documents() < 260);
  auto train = texts(tokenizer, folder / "out"), held_out = texts(tokenizer, folder / "out/validation");
  CHECK(std::count(train.begin(), train.end(), documents[3]) % 2 == 0);
  std::reverse(documents.begin(), documents.end());
  write_lines(folder / "b.txt", documents);
  prepare(tokenizer, {.inputs = {folder / "b.txt"}, .output = folder / "other", .validation = 0.1});
  auto again = texts(tokenizer, folder / "other/validation");
  std::reverse(again.begin(), again.end());
  CHECK(again == held_out);
  train.insert(train.end(), held_out.begin(), held_out.end());
  std::sort(train.begin(), train.end());
  std::sort(documents.begin(), documents.end());
  CHECK(train == documents);

  // Without a held-out part the old one goes.
  prepare(tokenizer, {.inputs = {folder / "a.txt"}, .output = folder / "out"});
  CHECK_FALSE(fs::exists(folder / "out/validation"));
  CHECK(TokenShards(folder / "out").document_count() == 2000);
  for (const double share : {-0.1, 1.0, 2.0}) {
    CHECK_THROWS_AS(prepare(tokenizer, {.inputs = {folder / "a.txt"}, .output = folder / "no", .validation = share}),
                    InputError);
  }
  CHECK_FALSE(fs::exists(folder / "no"));
}

TEST_CASE("a finished run is not repeated, a changed one is, another tokenizer's is kept") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  write_lines(folder / "a.txt", sentences(500));
  PrepareOptions options{
      .inputs = {folder / "a.txt"}, .output = folder / "out", .shard_tokens = 1000, .validation = 0.05};
  const PrepareReport first = prepare(tokenizer, options);
  CHECK_FALSE(first.up_to_date);
  const auto time = fs::last_write_time(folder / "out/index.json");
  const PrepareReport second = prepare(tokenizer, options);
  CHECK(second.up_to_date);
  CHECK(second.train.tokens() == first.train.tokens());
  CHECK(second.validation->tokens() == first.validation->tokens());
  CHECK(fs::last_write_time(folder / "out/index.json") == time);

  SECTION("a missing held-out part") {
    fs::remove_all(folder / "out/validation");
    const PrepareReport again = prepare(tokenizer, options);
    CHECK_FALSE(again.up_to_date);
    CHECK(again.validation->tokens() == first.validation->tokens());
    CHECK(TokenShards(folder / "out/validation").token_count() == first.validation->tokens());
  }
  SECTION("a missing shard") {
    fs::remove(folder / "out/shard-00002.bin");
    CHECK_FALSE(prepare(tokenizer, options).up_to_date);
    CHECK(TokenShards(folder / "out").token_count() == first.train.tokens());
  }
  SECTION("fewer and larger shards: the old ones go") {
    put_file(folder / "out/notes.txt", "mine");
    options.shard_tokens = 1 << 20;
    CHECK_FALSE(prepare(tokenizer, options).up_to_date);
    CHECK(TokenShards(folder / "out").token_count() == first.train.tokens());
    CHECK_FALSE(fs::exists(folder / "out/shard-00001.bin"));
    CHECK_FALSE(fs::exists(folder / "out/shard-00009.idx"));
    CHECK(fs::exists(folder / "out/notes.txt"));
  }
  SECTION("changed input") {
    write_lines(folder / "a.txt", sentences(100));
    CHECK_FALSE(prepare(tokenizer, options).up_to_date);
    CHECK(TokenShards(folder / "out").document_count() < 101);
  }
  SECTION("another tokenizer") {
    text::TokenizerModel model = tokenizer.model();
    model.added_tokens.push_back({"<|other|>", static_cast<text::TokenId>(model.tokens.size())});
    model.tokens.emplace_back("<|other|>");
    const text::Tokenizer other(std::move(model));
    CHECK_THROWS_MATCHES(prepare(other, options), InputError, MessageMatches(ContainsSubstring("--overwrite")));
    CHECK(TokenShards(folder / "out").vocabulary().tokenizer == tokenizer.fingerprint());
    options.overwrite = true;
    prepare(other, options);
    CHECK(TokenShards(folder / "out").vocabulary().tokenizer == other.fingerprint());
  }
}

TEST_CASE("a killed run goes on when repeated") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  std::vector<std::string> documents = sentences(900);
  for (auto& document : documents) document.append(40000, 'x');  // several chunks
  write_lines(folder / "a.txt", documents);
  PrepareOptions options{
      .inputs = {folder / "a.txt"}, .output = folder / "out", .shard_tokens = 3000000, .validation = 0.2};
  options.progress = [](std::uint64_t done, std::uint64_t total) {
    if (done > total / 2) throw RunError("killed");
  };
  CHECK_THROWS_AS(prepare(tokenizer, options), RunError);
  CHECK_THROWS_AS(TokenShards(folder / "out"), InputError);
  options.progress = nullptr;
  const PrepareReport report = prepare(tokenizer, options);
  CHECK(report.resumed_documents > 50);
  CHECK(report.resumed_documents < 900);
  options.output = folder / "whole";
  prepare(tokenizer, options);
  CHECK(TokenShards(folder / "out").fingerprint() == TokenShards(folder / "whole").fingerprint());
  CHECK(TokenShards(folder / "out/validation").fingerprint() == TokenShards(folder / "whole/validation").fingerprint());

  // Interrupted while the finished shards move to their place: whatever has moved, the next run completes it.
  const int moved = GENERATE(0, 1, 3, 100);
  fs::remove_all(folder / "out");
  fs::create_directories(folder / "out/validation");
  fs::create_directories(folder / "out/.unfinished/validation");
  int count = 0;
  for (const fs::path& part : {fs::path("validation"), fs::path(".")}) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder / "whole" / part)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end(), std::greater<>());  // the index last
    for (const auto& file : files) {
      const bool main_index = file.filename() == "index.json" && part == ".";
      const bool done = count++ < moved && !main_index;
      fs::copy(file, (done ? folder / "out" : folder / "out/.unfinished") / part / file.filename());
    }
  }
  options.output = folder / "out";
  options.progress = [](std::uint64_t, std::uint64_t) { throw RunError("nothing is to be read again"); };
  prepare(tokenizer, options);
  CHECK(TokenShards(folder / "out").fingerprint() == TokenShards(folder / "whole").fingerprint());
  CHECK(TokenShards(folder / "out/validation").fingerprint() == TokenShards(folder / "whole/validation").fingerprint());
  CHECK_FALSE(fs::exists(folder / "out/.unfinished"));
}

TEST_CASE("inputs without documents and faulty lines leave nothing behind") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  put_file(folder / "empty.txt", "\n\r\n");
  put_file(folder / "broken.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n");
  CHECK_THROWS_MATCHES(prepare(tokenizer, {.inputs = {folder / "empty.txt"}, .output = folder / "out"}), InputError,
                       MessageMatches(ContainsSubstring("empty.txt: no documents")));
  CHECK_THROWS_MATCHES(prepare(tokenizer, {.inputs = {folder / "broken.jsonl"}, .output = folder / "out"}), InputError,
                       MessageMatches(ContainsSubstring("broken.jsonl:2")));
  CHECK_THROWS_AS(prepare(tokenizer, {.inputs = {folder / "none.txt"}, .output = folder / "out"}), InputError);
  CHECK_THROWS_AS(prepare(tokenizer, {.inputs = {folder / "empty.txt"}, .output = folder / "broken.jsonl"}),
                  InputError);
  CHECK_FALSE(fs::exists(folder / "out"));
}

TEST_CASE("conversations go through the chat template") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = tiny_tokenizer();
  put_file(folder / "chat.jsonl",
           R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]})"
           "\n");
  prepare(tokenizer, {.inputs = {folder / "chat.jsonl"}, .output = folder / "out", .field = "messages"});
  const TokenShards shards(folder / "out");
  const auto ids = shards.document(0).to_vector();
  CHECK(tokenizer.decode(ids) ==
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nab<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\nc<|eot_id|><|end_of_text|>");
  CHECK(shards.document_bytes(0) == 3);
}
