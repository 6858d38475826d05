#include <ilme/data/token_shards.hpp>

#include <catch2/catch_all.hpp>

#include <filesystem>
#include <functional>
#include <string>

#include <ilme/data/concepts.hpp>
#include <ilme/data/shard_writer.hpp>
#include <ilme/data/token_documents.hpp>

#include "data/loader_support.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

static_assert(TokenSource<TokenShards>);
static_assert(TokenSource<TokenDocuments>);
static_assert(!TokenSource<int>);

namespace {

Documents read_all(const TokenShards& shards) {
  Documents documents;
  for (std::uint64_t i = 0; i < shards.document_count(); ++i) documents.push_back(shards.document(i).to_vector());
  return documents;
}

}  // namespace

TEST_CASE("shards give back what was written") {
  const std::uint64_t size = GENERATE(5000, 65536, 65537, 128256);
  const std::uint64_t shard_tokens = GENERATE(1, 20, 64, 100000);
  const TemporaryFolder folder;
  const Documents documents = resume_documents();
  const ShardIndex index = write_shards(folder / "out", documents, shard_tokens, size);
  const TokenShards shards(folder / "out");
  CHECK(read_all(shards) == documents);
  CHECK(shards.token_count() == 222);
  CHECK(shards.source_bytes() == 444);
  CHECK(shards.document_bytes(5) == 22);
  CHECK(shards.vocabulary() == vocabulary(size));
  CHECK(index.shards.size() == (shard_tokens == 1 ? 37 : shard_tokens == 100000 ? 1 : index.shards.size()));
  CHECK(std::filesystem::file_size(folder / "out/shard-00000.bin") == index.shards[0].tokens * (size <= 65536 ? 2 : 4));
  CHECK_NOTHROW(shards.require_tokenizer("0123abcd"));
  CHECK_THROWS_MATCHES(shards.require_tokenizer("ffff"), InputError, MessageMatches(ContainsSubstring("0123abcd")));
}

TEST_CASE("empty documents and an empty set are kept as they are") {
  const TemporaryFolder folder;
  const Documents documents = {{}, {3, 4}, {}, {}, {5}, {}};
  write_shards(folder / "out", documents, 2);
  CHECK(read_all(TokenShards(folder / "out")) == documents);
  write_shards(folder / "none", {});
  CHECK(TokenShards(folder / "none").document_count() == 0);
}

TEST_CASE("the writer refuses ids outside the vocabulary") {
  const TemporaryFolder folder;
  ShardWriter writer(folder / "out", vocabulary(100));
  const std::vector<std::uint32_t> ids = {99, 100};
  CHECK_THROWS_MATCHES(writer.add(ids, 1), InputError, MessageMatches(ContainsSubstring("token id 100")));
}

TEST_CASE("the fingerprint follows content and tokenizer, not the inputs' names") {
  const TemporaryFolder folder;
  Documents documents = resume_documents();
  write_shards(folder / "a", documents);
  write_shards(folder / "b", documents);
  documents[3][1] += 1;
  write_shards(folder / "c", documents);
  const std::string a = TokenShards(folder / "a").fingerprint();
  CHECK(a == TokenShards(folder / "b").fingerprint());
  CHECK(a != TokenShards(folder / "c").fingerprint());
}

TEST_CASE("an unfinished folder is no data set, and a repeated run goes on after its last whole shard") {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const Documents documents = resume_documents();
  const Json made_from = {{"inputs", "a.txt"}};
  write_shards(folder / "whole", documents);
  const std::size_t stop = GENERATE(0, 1, 9, 10, 20, 36, 37);
  {
    ShardWriter killed(out, vocabulary(), made_from, 64);
    for (std::size_t i = 0; i < stop; ++i) killed.add(documents[i], 2 * documents[i].size());
  }
  put_file(out / ".shard-00009.bin.unfinished-1", "left by kill -9");
  CHECK_THROWS_MATCHES(TokenShards(out), InputError, MessageMatches(ContainsSubstring("no index.json")));

  SECTION("the same run continues") {
    ShardWriter writer(out, vocabulary(), made_from, 64);
    CHECK(writer.documents() <= stop);
    CHECK((stop < 20 || writer.documents() > 0));
    for (std::size_t i = writer.documents(); i < documents.size(); ++i) {
      writer.add(documents[i], 2 * documents[i].size());
    }
    writer.finish();
  }
  SECTION("another run starts afresh") {
    ShardWriter writer(out, vocabulary(), {{"inputs", "b.txt"}}, 64);
    CHECK(writer.documents() == 0);
    for (const auto& ids : documents) writer.add(ids, 2 * ids.size());
    writer.finish();
  }
  const TokenShards shards(out);
  CHECK(read_all(shards) == documents);
  CHECK(shards.fingerprint() == TokenShards(folder / "whole").fingerprint());
  CHECK_FALSE(std::filesystem::exists(out / "progress.json"));
  CHECK_FALSE(std::filesystem::exists(out / ".shard-00009.bin.unfinished-1"));
}

TEST_CASE("progress that its shards contradict is not taken over") {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const Documents documents = resume_documents();
  {
    ShardWriter killed(out, vocabulary(), "run", 64);
    for (const auto& ids : documents) killed.add(ids, 0);
  }
  const int fault = GENERATE(0, 1, 2);
  if (fault == 0) put_file(out / "shard-00001.bin", "short");
  if (fault == 1) std::filesystem::remove(out / "shard-00000.idx");
  if (fault == 2) put_file(out / "progress.json", "{\"format\": ");
  ShardWriter writer(out, vocabulary(), "run", 64);
  CHECK(writer.documents() == 0);
}

TEST_CASE("processes that open a folder together check each shard once") {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  const std::size_t shards = write_shards(out, resume_documents()).shards.size();
  REQUIRE(shards >= 3);
  flip_byte(out / "shard-00002.bin", 7);
  CHECK_THROWS_AS(TokenShards(out), InputError);
  CHECK_NOTHROW(TokenShards(out, Verify::sizes));
  for (const std::size_t count : {2, 3, 7}) {
    for (std::size_t index = 0; index < count; ++index) {
      CAPTURE(index, count);
      const auto open = [&] { return TokenShards(out, Verify::checksums, {index, count}).token_count(); };
      if (index == 2 % count) {
        CHECK_THROWS_MATCHES(open(), InputError, MessageMatches(ContainsSubstring("shard-00002.bin")));
      } else {
        CHECK(open() == 222);
      }
    }
  }
}

TEST_CASE("corrupt and truncated shards are refused by name") {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  write_shards(out, resume_documents());
  struct Fault {
    const char* names;
    std::function<void()> make;
  };
  const auto edit_index = [&](const std::string& from, const std::string& to) {
    std::string text = read_file(out / "index.json");
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    put_file(out / "index.json", text.replace(at, from.size(), to));
  };
  const auto cut = [&](const char* name, std::size_t drop) {
    const std::string bytes = read_file(out / name);
    put_file(out / name, bytes.substr(0, bytes.size() - drop));
  };
  const std::vector<Fault> faults = {
      {"shard-00001.bin", [&] { cut("shard-00001.bin", 2); }},
      {"shard-00001.bin", [&] { cut("shard-00001.bin", 1); }},
      {"shard-00002.bin", [&] { put_file(out / "shard-00002.bin", ""); }},
      {"shard-00000.bin", [&] { flip_byte(out / "shard-00000.bin", 7); }},
      {"shard-00000.bin", [&] { std::filesystem::remove(out / "shard-00000.bin"); }},
      {"shard-00001.idx", [&] { cut("shard-00001.idx", 8); }},
      {"shard-00001.idx", [&] { flip_byte(out / "shard-00001.idx", 9); }},
      {"shard-00001.idx", [&] { std::filesystem::remove(out / "shard-00001.idx"); }},
      {"index.json", [&] { put_file(out / "index.json", "{\"format\""); }},
      {"index.json", [&] { put_file(out / "index.json", ""); }},
      {"index.json", [&] { put_file(out / "index.json", "[]"); }},
      {"no index.json", [&] { std::filesystem::remove(out / "index.json"); }},
      {"format version 2", [&] { edit_index("\"version\": 1", "\"version\": 2"); }},
      {"\"format\" is", [&] { edit_index("ilme-token-shards", "other"); }},
      {"token_type", [&] { edit_index("u16", "u32"); }},
      {"bos_id", [&] { edit_index("\"bos_id\": 1", "\"bos_id\": 5000"); }},
      {"\"tokens\" is 221", [&] { edit_index("\"tokens\": 222", "\"tokens\": 221"); }},
      {"key \"tokenizer\" is missing", [&] { edit_index("\"tokenizer\"", "\"tokeniser\""); }},
      {"wrong type", [&] { edit_index("\"tokens\": 222", "\"tokens\": -5"); }},
      {"holds token id", [&] { edit_index("\"vocabulary_size\": 5000", "\"vocabulary_size\": 300"); }},
  };
  const auto& fault = faults[GENERATE_COPY(range(std::size_t{0}, faults.size()))];
  fault.make();
  CHECK_THROWS_MATCHES(TokenShards(out), InputError, MessageMatches(ContainsSubstring(fault.names)));
}

TEST_CASE("an index with absurd counts is refused, not believed") {
  const TemporaryFolder folder;
  write_shards(folder / "out", {{3, 4, 5}});
  Json index = read_json(folder / "out/index.json");
  const std::uint64_t huge = GENERATE(std::uint64_t{1} << 60, std::uint64_t{1} << 63, ~std::uint64_t{0});
  for (const char* key : {"documents", "tokens", "source_bytes"}) {
    Json changed = index;
    changed[key] = huge;
    changed["shards"][0][key] = huge;
    put_file(folder / "out/index.json", changed.dump());
    CHECK_THROWS_AS(TokenShards(folder / "out"), InputError);
  }
  CHECK_THROWS_AS(TokenShards(folder / "nowhere"), InputError);
  CHECK_THROWS_AS(TokenShards(folder / "out/shard-00000.bin"), InputError);
}
