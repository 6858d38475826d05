#include <ilme/data/mixture.hpp>

#include <catch2/catch_all.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include <ilme/data/batched.hpp>
#include <ilme/data/chat_rows.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/token_documents.hpp>

#include "data/loader_support.hpp"

using namespace ilme;
using namespace ilme::data;
using namespace ilme::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

using Packed = PackedRows<TokenDocuments>;
static_assert(RowSource<MixedRows<Packed>>);
static_assert(RowSource<MixedRows<ChatRows>>);
static_assert(RowSource<MixedRows<MixedRows<Packed>>>);

namespace {

/// `rows` rows of four tokens; the tokens of row r of part p are 10,000 (p + 1) + 4 r and the three after it.
Packed part(std::uint32_t number, std::size_t rows, bool shuffle = false) {
  Documents documents(rows, std::vector<std::uint32_t>(4));
  std::uint32_t next = 10'000 * (number + 1);
  for (auto& document : documents) {
    for (auto& id : document) id = next++;
  }
  return packed_rows(TokenDocuments(documents), {.sequence_length = 4, .seed = 3, .shuffle = shuffle});
}

MixedRows<Packed> mixture(const std::vector<std::pair<std::size_t, double>>& sizes_and_weights,
                          std::uint64_t seed = 1) {
  std::vector<MixturePart<Packed>> parts;
  for (const auto& [rows, weight] : sizes_and_weights) {
    parts.push_back({part(static_cast<std::uint32_t>(parts.size()), rows), weight});
  }
  return mixed_rows(parts, seed);
}

/// The rows of some epochs of a mixture by part, each as its number in the part.
std::map<std::int64_t, std::vector<std::int64_t>> rows_by_part(MixedRows<Packed> rows, std::int64_t epochs) {
  std::map<std::int64_t, std::vector<std::int64_t>> found;
  const std::int64_t count = epochs * rows.rows_per_epoch();
  auto batches = std::move(rows) | batched(1);
  for (const auto& batch : take(batches, count)) {
    const std::int64_t id = batch.input_ids.front();
    found[id / 10'000 - 1].push_back(id % 10'000 / 4);
  }
  return found;
}

}  // namespace

TEST_CASE("without weights every row of every part comes once an epoch") {
  const auto rows = mixture({{7, 0}, {1, 0}, {2000, 0}});
  CHECK(rows.rows_per_epoch() == 2008);
  CHECK(rows.rows_of(2) == 2000);
  auto found = rows_by_part(rows, 2);
  for (auto& [index, numbers] : found) {
    const std::size_t half = numbers.size() / 2;
    for (std::size_t i = 0; i < numbers.size(); ++i) REQUIRE(numbers[i] == static_cast<std::int64_t>(i % half));
  }
  CHECK(found[0].size() == 14);
  CHECK(found[1].size() == 2);
  CHECK(found[2].size() == 4000);
}

TEST_CASE("weights give exact shares of each epoch, rounded by largest remainder") {
  const auto shares = [](const std::vector<std::pair<std::size_t, double>>& given) {
    const auto rows = mixture(given);
    std::vector<std::int64_t> all;
    for (std::size_t i = 0; i < given.size(); ++i) all.push_back(rows.rows_of(i));
    return all;
  };
  using Shares = std::vector<std::int64_t>;
  CHECK(shares({{100, 3}, {100, 1}}) == Shares{150, 50});
  CHECK(shares({{10, 1}, {1, 10}}) == Shares{1, 10});
  CHECK(shares({{5, 0.5}, {3, 0.3}, {2, 0.2}}) == Shares{5, 3, 2});
  CHECK(shares({{4, 1}, {3, 1}, {3, 1}}) == Shares{4, 3, 3});
  CHECK(shares({{10, 47}, {0 + 10, 16}, {10, 15.8}, {10, 12}, {10, 6.1}, {10, 3.1}}) == Shares{28, 10, 9, 7, 4, 2});
  CHECK(shares({{10, 1e308}, {10, 1e308}}) == Shares{10, 10});
  CHECK(shares({{10, 1e-308}, {10, 1e-308}}) == Shares{10, 10});
  CHECK(shares({{7, 5}}) == Shares{7});

  // Each part in its own order and epochs, whatever the mixture's: 9 rows of 3, 3 rows of 9.
  for (const auto& [index, numbers] : rows_by_part(mixture({{3, 3}, {9, 1}}), 4)) {
    const std::int64_t own = index == 0 ? 3 : 9;
    CHECK(numbers.size() == (index == 0 ? 36U : 12U));
    for (std::size_t i = 0; i < numbers.size(); ++i) REQUIRE(numbers[i] == static_cast<std::int64_t>(i) % own);
  }
}

TEST_CASE("the order of the parts is drawn anew for each epoch and seed") {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    auto batches = mixture({{64, 1}, {64, 1}}, seed) | batched(128);
    PackedBatch batch;
    for (std::int64_t i = 0; i <= epoch; ++i) batch = *batches.next();
    std::vector<bool> parts;
    for (std::size_t row = 0; row < 128; ++row) parts.push_back(batch.input_ids[row * 4] >= 20'000);
    return parts;
  };
  CHECK(order(1, 0) == order(1, 0));
  CHECK(order(1, 0) != order(1, 1));
  CHECK(order(1, 0) != order(2, 0));
  const auto parts = order(1, 0);
  CHECK(std::count(parts.begin(), parts.begin() + 64, true) > 16);  // mixed, not one after the other
  CHECK(std::count(parts.begin(), parts.begin() + 64, true) < 48);
}

TEST_CASE("a mixture is resumed at any step, by any split and number of threads") {
  const auto make = [](std::int64_t rows, BatchOptions options) {
    return mixed_rows(std::vector{MixturePart{part(0, 5, true), 2.0}, MixturePart{part(1, 40, true), 1.0}}, 9) |
           batched(rows, options);
  };
  auto whole = make(4, {});
  for (std::size_t stop = 0; stop < 30; ++stop) {
    const Json state = whole.state();
    const PackedBatch expected = *whole.next();
    auto rank0 = make(2, {.rank = 0, .world = 2}), rank1 = make(2, {.rank = 1, .world = 2});
    rank0.restore(state);
    rank1.restore(Json::parse(state.dump()));
    auto ids = rank0.next()->input_ids, more = rank1.next()->input_ids;
    ids.insert(ids.end(), more.begin(), more.end());
    REQUIRE(ids == expected.input_ids);
    auto ahead = make(4, {}) | prefetched(3, 4);
    ahead.restore(state);
    REQUIRE(*ahead.next() == expected);
  }
}

TEST_CASE("rows of a mixture are made in any order on several threads") {
  const auto rows = mixture({{3, 500}, {2400, 1}});
  const auto epoch = rows.epoch(2);
  const auto first_id = [&](std::int64_t row) {
    std::vector<std::int64_t> ids(4), labels(4), positions(4), offsets{0};
    std::vector<DocumentId> documents;
    epoch->fill(row, RowSlot(ids, labels, positions, offsets, documents));
    return ids[0];
  };
  std::vector<std::int64_t> forwards, backwards(2403);
  for (std::int64_t row = 0; row < 2403; ++row) forwards.push_back(first_id(row));
  std::vector<std::jthread> threads;
  for (std::int64_t k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      for (std::int64_t row = 2402 - k; row >= 0; row -= 3) backwards[static_cast<std::size_t>(row)] = first_id(row);
    });
  }
  threads.clear();
  CHECK(forwards == backwards);
}

TEST_CASE("a mixture of one part is that part, so its checkpoints go on") {
  auto alone = part(0, 9, true) | batched(2);
  auto mixed = mixed_rows(std::vector{MixturePart{part(0, 9, true), 4.0}}, 77) | batched(2);
  CHECK(mixed.state() == alone.state());
  CHECK(take(mixed, 12) == take(alone, 12));
  CHECK(mixed.state() == alone.state());
}

TEST_CASE("another mixture is refused on resume") {
  auto saved = mixture({{10, 3}, {10, 1}}) | batched(2);
  const auto refused = [&](const MixedRows<Packed>& other, const std::string& words) {
    auto batches = other | batched(2);
    CHECK_THROWS_MATCHES(batches.restore(saved.state()), InputError, MessageMatches(ContainsSubstring(words)));
  };
  refused(mixture({{10, 1}, {10, 1}}), "mixture is");
  refused(mixture({{10, 3}, {11, 1}}), "mixture is");
  refused(mixture({{10, 3}, {10, 1}}, 2), "seed is 1, this run's is 2");
  refused(mixture({{20, 0}}), "data is null");
  auto same = mixture({{10, 6}, {10, 2}}) | batched(2);
  CHECK_NOTHROW(same.restore(saved.state()));  // the shares are what counts
}

TEST_CASE("impossible mixtures are refused") {
  const auto refused = [](const std::vector<std::pair<std::size_t, double>>& given, const std::string& words) {
    CHECK_THROWS_MATCHES(mixture(given), InputError, MessageMatches(ContainsSubstring(words)));
  };
  refused({}, "no part");
  refused({{3, 1}, {3, 0}}, "has no weight, but others have one");
  refused({{3, 1}, {3, -1}}, "is -1, expected a positive number");
  refused({{3, std::nan("")}}, "expected a positive number");
  refused({{3, 1}, {3, std::numeric_limits<double>::infinity()}}, "expected a positive number");
  refused({{3, 1}, {3, 1e-6}}, "none of the 6 rows of an epoch");
  const TokenDocuments source(resume_documents());
  CHECK_THROWS_MATCHES(mixed_rows(std::vector{MixturePart{packed_rows(source, {.sequence_length = 8})},
                                              MixturePart{packed_rows(source, {.sequence_length = 4})}}),
                       InputError, MessageMatches(ContainsSubstring("has sequence length 4,")));
  CHECK_THROWS_MATCHES(
      mixed_rows(std::vector{MixturePart{packed_rows(source, {.sequence_length = 8})},
                             MixturePart{packed_rows(source, {.sequence_length = 8, .drop_last = true})}}),
      InputError, MessageMatches(ContainsSubstring("drop_last")));
}
