#include <ilme/data/packing.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/data/token_shards.hpp>

#include "data/loader_support.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;

static_assert(RowSource<PackedRows<TokenDocuments>>);
static_assert(RowSource<PackedRows<TokenShards>>);
static_assert(!RowSource<TokenDocuments>);

namespace {

constexpr std::int64_t kPad = 999'999'999;

/// Checks one batch against the documents that it can only have come from.
void check_batch(const PackedBatch& batch, const Documents& documents, std::uint32_t stride) {
  const auto size = static_cast<std::size_t>(batch.rows * batch.sequence_length);
  REQUIRE(batch.input_ids.size() == size);
  REQUIRE(batch.labels.size() == size);
  REQUIRE(batch.position_ids.size() == size);
  const auto& offsets = batch.sequence_offsets;
  REQUIRE(offsets.front() == 0);
  REQUIRE(offsets.back() == static_cast<std::int64_t>(size));
  REQUIRE(std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) == offsets.end());
  for (std::int64_t row = 0; row <= batch.rows; ++row) {
    REQUIRE(std::binary_search(offsets.begin(), offsets.end(), row * batch.sequence_length));
  }
  std::int64_t labels = 0;
  for (std::size_t part = 0; part + 1 < offsets.size(); ++part) {
    const auto first = static_cast<std::size_t>(offsets[part]), end = static_cast<std::size_t>(offsets[part + 1]);
    for (std::size_t t = first; t < end; ++t) {
      REQUIRE(batch.position_ids[t] == static_cast<std::int64_t>(t - first));
      const std::int64_t id = batch.input_ids[t];
      if (id == kPad) {
        REQUIRE(batch.labels[t] == kIgnoredLabel);
        REQUIRE(batch.input_ids[first] == kPad);  // padding is a part of its own
        continue;
      }
      if (t > first) REQUIRE(id == batch.input_ids[t - 1] + 1);  // one document, in order
      const auto document = static_cast<std::size_t>(id / stride - 1), place = static_cast<std::size_t>(id % stride);
      const bool last = place + 1 == documents[document].size();
      REQUIRE(batch.labels[t] == (last ? kIgnoredLabel : id + 1));
      labels += last ? 0 : 1;
    }
  }
  REQUIRE(batch.token_count == labels);
}

}  // namespace

TEST_CASE("documents packed in one row have the labels they have alone") {  // case packing-equals-separate
  const TokenDocuments documents({{1, 5, 9, 33, 64, 2}, {1, 17, 40, 2}, {1, 7, 7, 7, 7, 7, 12, 2}});
  auto batches = packed_rows(documents, {.sequence_length = 18, .shuffle = false}) | batched(1);
  const PackedBatch batch = *batches.next();
  CHECK(batch.input_ids == std::vector<std::int64_t>{1, 5, 9, 33, 64, 2, 1, 17, 40, 2, 1, 7, 7, 7, 7, 7, 12, 2});
  CHECK(batch.labels == std::vector<std::int64_t>{5, 9, 33, 64, 2, -100, 17, 40, 2, -100, 7, 7, 7, 7, 7, 12, 2, -100});
  CHECK(batch.position_ids == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.sequence_offsets == std::vector<std::int64_t>{0, 6, 10, 18});
  CHECK(batch.token_count == 15);

  auto padded = packed_rows(documents, {.sequence_length = 20, .shuffle = false, .padding_id = 2}) | batched(1);
  const PackedBatch longer = *padded.next();
  CHECK(longer.sequence_offsets == std::vector<std::int64_t>{0, 6, 10, 18, 20});
  CHECK(longer.token_count == 15);
  CHECK(longer.labels.back() == kIgnoredLabel);
}

TEST_CASE("a document that a row cuts goes on in the next, and its label looks ahead") {
  const TokenDocuments documents({{10, 11, 12, 13, 14}, {20, 21, 22, 23, 24, 25}});
  auto batches = packed_rows(documents, {.sequence_length = 4, .shuffle = false, .padding_id = 7}) | batched(3);
  const PackedBatch batch = *batches.next();
  CHECK(batch.input_ids == std::vector<std::int64_t>{10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25, 7});
  CHECK(batch.labels == std::vector<std::int64_t>{11, 12, 13, 14, -100, 21, 22, 23, 24, 25, -100, -100});
  CHECK(batch.position_ids == std::vector<std::int64_t>{0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 2, 0});
  CHECK(batch.sequence_offsets == std::vector<std::int64_t>{0, 4, 5, 8, 11, 12});
  CHECK(batch.token_count == 9);
}

TEST_CASE("property: every token is an input once an epoch, in its document's order") {
  const std::uint64_t seed = GENERATE(range(0, 40));
  const std::size_t count = 1 + static_cast<std::size_t>(random_bits(seed, 1) % 60);
  const Documents documents = random_documents(seed, count, 1 + random_bits(seed, 2) % 40);
  const TokenDocuments source(documents);
  if (source.token_count() == 0) return;
  const auto length = static_cast<std::int64_t>(1 + random_bits(seed, 3) % 50);
  const auto rows_per_batch = static_cast<std::int64_t>(1 + random_bits(seed, 4) % 4);
  auto batches = packed_rows(source, {.sequence_length = length, .seed = seed, .padding_id = kPad}) |
                 batched(rows_per_batch, {.padding_id = kPad});
  std::vector<std::int64_t> expected;
  std::int64_t labels = 0;
  for (const auto& ids : documents) {
    expected.insert(expected.end(), ids.begin(), ids.end());
    labels += ids.empty() ? 0 : static_cast<std::int64_t>(ids.size()) - 1;
  }
  std::vector<std::vector<std::int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto taken = take(batches, batches.batches_per_epoch());
    std::int64_t counted = 0;
    for (const auto& batch : taken) {
      check_batch(batch, documents, 1000);
      counted += batch.token_count;
    }
    CHECK(counted == labels);
    auto tokens = tokens_of(taken, kPad);
    orders.push_back(tokens);
    std::sort(tokens.begin(), tokens.end());
    CHECK(tokens == expected);
  }
  if (count > 20) {
    CHECK(orders[0] != orders[1]);
    CHECK(orders[1] != orders[2]);
  }
}

TEST_CASE("drop_last leaves out less than a row, and nothing when the rows come out even") {
  const Documents documents = resume_documents();
  const TokenDocuments source(documents);
  auto batches =
      packed_rows(source, {.sequence_length = 8, .seed = 5, .drop_last = true, .padding_id = kPad}) | batched(1);
  CHECK(batches.batches_per_epoch() == 27);
  const auto tokens = tokens_of(take(batches, 27), kPad);
  CHECK(tokens.size() == 216);
  CHECK((packed_rows(source, {.sequence_length = 6, .drop_last = true}) | batched(1)).batches_per_epoch() == 37);
  CHECK((packed_rows(source, {.sequence_length = 6}) | batched(1)).batches_per_epoch() == 37);
}

TEST_CASE("shards and memory give the same rows for the same seed") {
  const TemporaryFolder folder;
  const Documents documents = resume_documents();
  write_shards(folder / "out", documents);
  auto from_disk = packed_rows(TokenShards(folder / "out"), {.sequence_length = 8, .seed = 5}) | batched(2);
  auto from_memory = packed_rows(TokenDocuments(documents), {.sequence_length = 8, .seed = 5}) | batched(2);
  CHECK(take(from_disk, 40) == take(from_memory, 40));
}

TEST_CASE("too little data is refused at the start") {
  CHECK_THROWS_AS(packed_rows(TokenDocuments({}), {.sequence_length = 8}), InputError);
  CHECK_THROWS_AS(packed_rows(TokenDocuments(Documents{{}, {}}), {.sequence_length = 8}), InputError);
  CHECK_THROWS_AS(packed_rows(TokenDocuments({{1, 2}}), {.sequence_length = 8, .drop_last = true}), InputError);
  CHECK_THROWS_AS(packed_rows(TokenDocuments({{1, 2}}), {.sequence_length = 0}), InputError);
}
