#include <ilme/data/prefetched.hpp>

#include <catch2/catch_all.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/token_documents.hpp>

#include "data/loader_support.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;

namespace {

/// A source that can only be read in order: batch i has the one token i.
struct Counter {
  std::int64_t at = 0, limit = -1, fails_at = -1;
  std::shared_ptr<std::atomic<int>> made = std::make_shared<std::atomic<int>>(0);
  std::chrono::microseconds delay{0};

  std::optional<PackedBatch> next() {
    std::this_thread::sleep_for(delay);
    if (at == fails_at) throw InputError("batch ", at, " is broken");
    if (at == limit) return std::nullopt;
    ++*made;
    PackedBatch batch;
    batch.rows = batch.sequence_length = 1;
    batch.input_ids = batch.labels = {at++};
    batch.position_ids = {0};
    batch.sequence_offsets = {0, 1};
    return batch;
  }
  Json state() const { return {{"at", at}}; }
  void restore(const Json& state) { at = JsonObject(state, "counter").require<std::int64_t>("at"); }
  std::int64_t batches_per_epoch() const { return 10; }
};

static_assert(BatchSource<Counter> && !ParallelBatchSource<Counter>);
static_assert(BatchSource<Prefetched<Counter>>);
static_assert(BatchSource<Prefetched<Batched<PackedRows<TokenDocuments>>>>);

}  // namespace

TEST_CASE("prefetching changes neither order nor content for any number of threads") {
  const TokenDocuments source(random_documents(1, 200, 90));
  const auto make = [&] { return packed_rows(source, {.sequence_length = 32, .seed = 7}) | batched(3); };
  auto plain = make();
  const auto expected = take(plain, 300);
  for (const std::size_t threads : {1, 2, 4}) {
    for (const std::size_t ahead : {1, 2, 8}) {
      auto source_ahead = make() | prefetched(ahead, threads);
      CAPTURE(threads, ahead);
      REQUIRE(take(source_ahead, 300) == expected);
    }
  }
}

TEST_CASE("the state counts what was handed out while more is read") {
  Counter counter;
  const auto made = counter.made;
  auto source = counter | prefetched(5);
  CHECK(source.state() == Json{{"at", 0}});
  CHECK(source.next()->input_ids[0] == 0);
  for (int i = 0; i < 2000 && *made < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(*made == 6);
  CHECK(source.state() == Json{{"at", 1}});
  CHECK(source.batches_per_epoch() == 10);
  source.restore({{"at", 42}});
  CHECK(source.state() == Json{{"at", 42}});
  CHECK(source.next()->input_ids[0] == 42);
  CHECK(source.next()->input_ids[0] == 43);
}

TEST_CASE("a refused state leaves the position where it was") {
  auto source = Counter{} | prefetched(4);
  CHECK(take(source, 3).size() == 3);
  CHECK_THROWS_AS(source.restore(Json::object()), InputError);
  CHECK(source.state() == Json{{"at", 3}});
  CHECK(source.next()->input_ids[0] == 3);
}

TEST_CASE("the upstream's end and errors come out in their place") {
  auto ending = Counter{.limit = 4} | prefetched(8);
  CHECK(take(ending, 100).size() == 4);
  CHECK_FALSE(ending.next());
  CHECK_FALSE(ending.next());
  auto broken = Counter{.fails_at = 3} | prefetched(8);
  CHECK(take(broken, 3).size() == 3);
  CHECK_THROWS_AS(broken.next(), InputError);
  CHECK_THROWS_AS(broken.next(), InputError);
  CHECK(broken.state() == Json{{"at", 3}});
  broken.restore({{"at", 4}});
  CHECK(broken.next()->input_ids[0] == 4);
}

TEST_CASE("a loader ends cleanly whatever its threads are at, and moves") {
  const TokenDocuments source(random_documents(2, 50, 40));
  for (int i = 0; i < 30; ++i) {
    auto batches = packed_rows(source, {.sequence_length = 16}) | batched(2) | prefetched(3, 2);
    for (int k = 0; k < i % 4; ++k) batches.next();
    auto moved = std::move(batches);
    if (i % 2 == 0) CHECK(moved.next());
  }
  auto slow = Counter{.delay = std::chrono::microseconds(3000)} | prefetched(2);
  CHECK(slow.next());
}

TEST_CASE("impossible settings are refused") {
  CHECK_THROWS_AS(Counter{} | prefetched(0), InputError);
  CHECK_THROWS_AS(Counter{} | prefetched(2, 0), InputError);
  CHECK_THROWS_AS(Counter{} | prefetched(2, 2), InputError);
}
