#include <ilme/data/document_sources.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/chat_rows.hpp>
#include <ilme/data/mixture.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/data/token_shards.hpp>

#include "data/loader_support.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;

TEST_CASE("documents are said in ranges, by source") {
  const std::vector<DocumentSource> sources = {{"shards"}, {"chat.jsonl", "line"}};
  CHECK(describe_documents({{0, 204}, {0, 17}, {-1, -1}, {0, 203}, {0, 205}, {0, 17}, {1, 8}}, sources) ==
        "shards: documents 17, 203-205; chat.jsonl: line 8");
  CHECK(describe_documents({{2, 5}, {1, 1}, {1, 2}}, sources) == "chat.jsonl: lines 1-2; source 2: document 5");
  CHECK(describe_documents({{-1, -1}}, sources).empty());
  CHECK(describe_documents({}, sources).empty());
  CHECK(describe_documents({{0, 1}, {0, 3}, {0, 5}, {0, 6}}, sources, 2) == "shards: documents 1, 3 and 2 more");
}

TEST_CASE("a batch says the document of each part, whatever it went through") {
  const TemporaryFolder folder;
  const Documents documents = random_documents(4, 60, 20);
  write_shards(folder / "out", documents, 64, 100000);
  const auto first = packed_rows(TokenShards(folder / "out"), {.sequence_length = 16, .seed = 3, .padding_id = 7});
  const auto second = packed_rows(TokenShards(folder / "out"), {.sequence_length = 16, .seed = 4, .padding_id = 7});
  auto batches = mixed_rows(std::vector{MixturePart{first}, MixturePart{second}}) | batched(5, {.padding_id = 7}) |
                 prefetched(2, 2);
  REQUIRE(batches.document_sources().size() == 2);
  CHECK(batches.document_sources()[1].name == (folder / "out").string());
  std::size_t of_second = 0, paddings = 0;
  for (const auto& batch : take(batches, batches.batches_per_epoch())) {
    const auto& offsets = batch.sequence_offsets;
    REQUIRE(batch.documents.size() + 1 == offsets.size());
    for (std::size_t part = 0; part + 1 < offsets.size(); ++part) {
      const DocumentId id = batch.documents[part];
      const std::int64_t token = batch.input_ids[static_cast<std::size_t>(offsets[part])];
      if (token == 7) {
        REQUIRE(id == DocumentId{});
        ++paddings;
        continue;
      }
      REQUIRE(id.document == token / 1000 - 1);  // a telling document's token says it too
      of_second += id.source == 1;
    }
  }
  CHECK(of_second > 0);
  CHECK(paddings > 0);
}

TEST_CASE("conversations go by file and line, through a mixture of mixtures too") {
  const text::EncodedChat chat{{1, 2, 3}, {0, 1, 1}}, silent{{1, 2, 3}, {0, 0, 0}};
  const ChatExamples a({chat, silent, chat}, 4, {{0, 1}, {0, 2}, {1, 1}}, {{"a.jsonl", "line"}, {"b.jsonl", "line"}});
  const ChatExamples b({chat}, 4, {{0, 9}}, {{"c.jsonl", "line"}});
  const auto inner = mixed_rows(std::vector{MixturePart{chat_rows(b)}, MixturePart{chat_rows(a)}});
  auto batches = mixed_rows(std::vector{MixturePart{inner}, MixturePart{inner}}) | batched(6);
  const auto batch = *batches.next();
  CHECK(describe_documents(batch.documents, batches.document_sources()) ==
        "c.jsonl: line 9; a.jsonl: line 1; b.jsonl: line 1; c.jsonl: line 9; a.jsonl: line 1; b.jsonl: line 1");
  auto unnamed = chat_rows(ChatExamples({silent, chat}, 4)) | batched(1);
  CHECK(describe_documents(unnamed.next()->documents, unnamed.document_sources()) == "conversations: example 1");
}
