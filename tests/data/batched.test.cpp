#include <ilme/data/batched.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <ilme/data/packing.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/token_documents.hpp>
#include <ilme/data/token_shards.hpp>

#include "data/loader_support.hpp"
#include "support/temporary.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

static_assert(BatchSource<Batched<PackedRows<TokenDocuments>>>);
static_assert(ParallelBatchSource<Batched<PackedRows<TokenDocuments>>>);
static_assert(StepBatchSource<Batched<PackedRows<TokenDocuments>>>);
static_assert(!BatchSource<PackedRows<TokenDocuments>>);

namespace {

constexpr std::int64_t kPad = 999'999'999;

template <TokenSource Source>
auto loader(const Source& source, PackingOptions options = {.sequence_length = 8, .seed = 5}, std::int64_t rows = 2,
            BatchOptions batch = {}) {
  options.padding_id = batch.padding_id = kPad;
  return packed_rows(source, options) | batched(rows, batch);
}

/// A global batch of rows, shared out: `rows` a batch, `world` ranks, `accumulate` batches a step.
struct Split {
  std::int64_t rows, world, accumulate;

  std::vector<Batched<PackedRows<TokenDocuments>>> ranks(const TokenDocuments& source, PackingOptions options) const {
    std::vector<Batched<PackedRows<TokenDocuments>>> all;
    for (std::int64_t rank = 0; rank < world; ++rank) {
      all.push_back(loader(source, options, rows, {.rank = rank, .world = world, .accumulate = accumulate}));
    }
    return all;
  }
};

/// The ids and labels of all ranks' batches of one step, in the order of the rows.
template <class Ranks>
std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> step_of(Ranks& ranks) {
  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> step;
  for (std::int64_t batch = 0; batch < ranks.front().accumulate(); ++batch) {
    for (auto& rank : ranks) {
      const auto made = *rank.next();
      step.first.insert(step.first.end(), made.input_ids.begin(), made.input_ids.end());
      step.second.insert(step.second.end(), made.labels.begin(), made.labels.end());
    }
  }
  return step;
}

}  // namespace

TEST_CASE("a loader stopped after any step goes on as if it had not stopped") {  // case data-resume-exact
  const TemporaryFolder folder;
  CHECK(write_shards(folder / "out", resume_documents(), 60).shards.size() == 4);
  const TokenShards source(folder / "out");
  const bool drop_last = GENERATE(false, true);
  const PackingOptions options{.sequence_length = 8, .seed = 5, .drop_last = drop_last};
  auto whole = loader(source, options);
  CHECK(whole.batches_per_epoch() == (drop_last ? 13 : 14));
  const std::int64_t steps = 3 * whole.batches_per_epoch();
  const auto expected = take(whole, steps + 5);

  for (std::int64_t stop = 0; stop <= steps; ++stop) {
    auto first = loader(source, options);
    take(first, stop);
    const std::string saved = first.state().dump();  // as a checkpoint would hold it
    auto second = loader(source, options);
    take(second, stop % 4);  // wherever it stands
    second.restore(Json::parse(saved));
    const std::vector<PackedBatch> rest(expected.begin() + stop, expected.end());
    REQUIRE(take(second, steps + 5 - stop) == rest);

    auto ahead = loader(source, options) | prefetched(3);
    take(ahead, stop);
    REQUIRE(ahead.state() == Json::parse(saved));  // what was handed out, not what was read
    for (const std::size_t threads : {1, 2, 4}) {
      auto resumed = loader(source, options) | prefetched(2, threads);
      resumed.restore(Json::parse(saved));
      REQUIRE(resumed.state() == Json::parse(saved));
      REQUIRE(take(resumed, 3) == std::vector<PackedBatch>(rest.begin(), rest.begin() + 3));
    }
  }
  for (int epoch = 0; epoch < 3; ++epoch) {  // no token twice in an epoch
    const auto begin = expected.begin() + epoch * whole.batches_per_epoch();
    const auto tokens = tokens_of({begin, begin + whole.batches_per_epoch()}, kPad);
    CHECK(std::set<std::int64_t>(tokens.begin(), tokens.end()).size() == tokens.size());
    CHECK(tokens.size() == (drop_last ? 208 : 222));
  }
}

TEST_CASE("a step has the same rows however ranks and accumulation share it out") {  // case data-resume-exact, (f)
  const TokenDocuments source(resume_documents());
  const bool drop_last = GENERATE(false, true);
  const PackingOptions options{.sequence_length = 8, .seed = 5, .drop_last = drop_last};
  const std::vector<Split> splits = {{4, 1, 1}, {2, 2, 1}, {1, 4, 1}, {2, 1, 2}, {1, 1, 4}, {1, 2, 2}};
  auto one = loader(source, options, 4);
  const std::int64_t steps = 3 * one.batches_per_epoch();
  CHECK(steps == 3 * (drop_last ? 6 : 7));
  std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> expected;
  std::vector<Json> states;  // before each step
  for (std::int64_t step = 0; step < steps; ++step) {
    states.push_back(one.state());
    const auto batch = *one.next();
    expected.emplace_back(batch.input_ids, batch.labels);
  }
  for (const Split& split : splits) {
    CAPTURE(split.rows, split.world, split.accumulate);
    auto straight = split.ranks(source, options);
    CHECK(straight.front().batches_per_epoch() == one.batches_per_epoch() * split.accumulate);
    for (std::size_t stop = 0; stop < expected.size(); ++stop) {
      for (const auto& rank : straight) REQUIRE(rank.state() == states[stop]);  // whoever resumes from it
      auto resumed = split.ranks(source, options);
      for (auto& rank : resumed) rank.restore(states[stop]);
      REQUIRE(step_of(resumed) == expected[stop]);
      REQUIRE(step_of(straight) == expected[stop]);
    }
  }
}

TEST_CASE("a state in the middle of a step is restored there, by the same ranks") {
  const TokenDocuments source(resume_documents());
  auto whole = loader(source, {.sequence_length = 8, .seed = 5}, 2, {.accumulate = 3});
  const auto expected = take(whole, 20);
  for (std::int64_t stop = 0; stop < 15; ++stop) {
    auto first = loader(source, {.sequence_length = 8, .seed = 5}, 2, {.accumulate = 3}) | prefetched(4);
    CHECK(first.accumulate() == 3);
    take(first, stop);
    auto second = loader(source, {.sequence_length = 8, .seed = 5}, 2, {.accumulate = 3}) | prefetched(2, 2);
    second.restore(first.state());
    REQUIRE(take(second, 5) == std::vector<PackedBatch>(expected.begin() + stop, expected.begin() + stop + 5));
    auto other = loader(source, {.sequence_length = 8, .seed = 5}, 3, {.world = 2});
    if (stop % 3 == 0) {
      CHECK_NOTHROW(other.restore(first.state()));
    } else {
      CHECK_THROWS_MATCHES(other.restore(first.state()), InputError,
                           MessageMatches(ContainsSubstring("is not the start of one of")));
    }
  }
}

TEST_CASE("a state of another run is refused by name") {
  const TokenDocuments source(resume_documents());
  auto saved = loader(source);
  take(saved, 3);
  const Json state = saved.state();
  Documents other = resume_documents();
  other[5][2] = 7;
  const auto refused = [&](auto target, const std::string& words) {
    const Json before = target.state();
    CHECK_THROWS_MATCHES(target.restore(state), InputError, MessageMatches(ContainsSubstring(words)));
    CHECK(target.state() == before);
  };
  refused(loader(source, {.sequence_length = 8, .seed = 6}), "seed is 5, this run's is 6");
  refused(loader(source, {.sequence_length = 9, .seed = 5}), "sequence_length is 8, this run's is 9");
  refused(loader(source, {.sequence_length = 8, .seed = 5}, 3), "global_batch_size is 2, this run's is 3");
  refused(loader(source, {.sequence_length = 8, .seed = 5}, 2, {.rank = 1, .world = 2}), "global_batch_size is 2");
  refused(loader(source, {.sequence_length = 8, .seed = 5}, 2, {.accumulate = 2}), "global_batch_size is 2");
  refused(loader(source, {.sequence_length = 8, .seed = 5, .drop_last = true}), "drop_last is false");
  refused(loader(TokenDocuments(other)), "data is");
  refused(loader(TokenDocuments(other)) | prefetched(2), "data is");

  auto target = loader(source);
  for (const char* broken : {"{}", "[]", "5", "null"}) CHECK_THROWS_AS(target.restore(Json::parse(broken)), InputError);
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"row", 1}, {"row", -2}, {"row", 28}, {"row", "x"}, {"row", 1e300}, {"epoch", -1}, {"epoch", nullptr}}) {
    Json changed = state;
    changed[key] = value;
    CAPTURE(key, value.dump());
    CHECK_THROWS_AS(target.restore(changed), InputError);
  }
}

TEST_CASE("all ranks make the same number of steps") {  // case data-uneven-ranks
  struct Row {
    std::size_t sequences;
    std::int64_t world, batch, steps_drop, used_drop, steps_keep;
  };
  const Row row =
      GENERATE(Row{23, 1, 2, 11, 22, 12}, Row{23, 2, 2, 5, 20, 6}, Row{23, 4, 2, 2, 16, 3}, Row{23, 3, 4, 1, 12, 2},
               Row{4, 4, 1, 1, 4, 1}, Row{3, 4, 1, 0, 0, 1}, Row{1, 2, 1, 0, 0, 1}, Row{8, 4, 2, 1, 8, 1});
  const std::vector<std::size_t> layout =
      GENERATE(std::vector<std::size_t>{6, 6, 6, 5}, std::vector<std::size_t>{20, 1, 1, 1},
               std::vector<std::size_t>{0, 23, 0, 0}, std::vector<std::size_t>{23});
  const TemporaryFolder folder;
  const Documents documents = telling_documents(std::vector<std::size_t>(row.sequences, 8), 1000);
  write_shards(folder / "out", documents, 8 * std::max<std::size_t>(layout[0], 1), 100000);
  const TokenShards source(folder / "out");
  for (const bool drop_last : {true, false}) {
    std::multiset<std::int64_t> used;
    for (std::int64_t rank = 0; rank < row.world; ++rank) {
      const auto make = [&] {
        return packed_rows(source, {.sequence_length = 8, .seed = 3, .drop_last = drop_last, .padding_id = kPad}) |
               batched(row.batch, {.rank = rank, .world = row.world, .epochs = 1, .padding_id = kPad});
      };
      if (drop_last && row.steps_drop == 0) {
        CHECK_THROWS_MATCHES(make(), InputError, MessageMatches(ContainsSubstring("too few for one batch")));
        continue;
      }
      auto batches = make();
      const auto taken = take(batches, 1000);
      CHECK(static_cast<std::int64_t>(taken.size()) == (drop_last ? row.steps_drop : row.steps_keep));
      CHECK(batches.batches_per_epoch() == static_cast<std::int64_t>(taken.size()));
      for (const auto& batch : taken) {
        CHECK(batch.rows == row.batch);
        for (std::int64_t r = 0; r < batch.rows; ++r) {
          const std::int64_t id = batch.input_ids[static_cast<std::size_t>(r * 8)];
          if (id != kPad) used.insert(id);
          const auto labels = batch.labels.begin() + r * 8;
          if (id == kPad) CHECK(std::count(labels, labels + 8, kIgnoredLabel) == 8);
        }
      }
    }
    CHECK(used.size() == std::set<std::int64_t>(used.begin(), used.end()).size());
    CHECK(static_cast<std::int64_t>(used.size()) ==
          (drop_last ? row.used_drop : static_cast<std::int64_t>(row.sequences)));
  }
}

TEST_CASE("a limited number of epochs ends, and stays at its end") {
  const TokenDocuments source(resume_documents());
  auto batches = loader(source, {.sequence_length = 8, .seed = 5}, 2, {.epochs = 2});
  CHECK(take(batches, 1000).size() == 28);
  CHECK_FALSE(batches.next());
  auto again = loader(source, {.sequence_length = 8, .seed = 5}, 2, {.epochs = 2});
  again.restore(batches.state());
  CHECK_FALSE(again.next());
}

TEST_CASE("impossible batch sizes and ranks are refused") {
  const TokenDocuments source(resume_documents());
  const PackingOptions options{.sequence_length = 8};
  CHECK_THROWS_AS(loader(source, options, 0), InputError);
  CHECK_THROWS_AS(loader(source, options, 2, {.rank = 2, .world = 2}), InputError);
  CHECK_THROWS_AS(loader(source, options, 2, {.rank = -1, .world = 2}), InputError);
  CHECK_THROWS_AS(loader(source, options, 2, {.rank = 0, .world = 0}), InputError);
  CHECK_THROWS_AS(loader(source, options, 2, {.accumulate = 0}), InputError);
  CHECK_THROWS_MATCHES(loader(source, {.sequence_length = 8, .drop_last = true}, 2, {.world = 4, .accumulate = 4}),
                       InputError, MessageMatches(ContainsSubstring("27 rows, too few for one batch of 2 on 4 ranks")));
}
