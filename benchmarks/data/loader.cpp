/// The loader's speed: tokens/s of packed rows in batches, plain, of a rank, mixed and read ahead; the plan of an
/// epoch; opening shards.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <ilme/core/random.hpp>
#include <ilme/data/batched.hpp>
#include <ilme/data/mixture.hpp>
#include <ilme/data/packing.hpp>
#include <ilme/data/prefetched.hpp>
#include <ilme/data/shard_writer.hpp>
#include <ilme/data/token_shards.hpp>

namespace {

using namespace ilme;
using namespace ilme::data;

/// 20 million random tokens in documents of 20 to 1,000, as shards in a temporary folder that goes at the end.
class Corpus {
 public:
  explicit Corpus(std::uint64_t vocabulary_size)
      : folder_(std::filesystem::temp_directory_path() / concat("ilme-loader-", vocabulary_size, "-", ::getpid())) {
    ShardWriter writer(folder_, {.tokenizer = "random", .vocabulary_size = vocabulary_size});
    std::vector<std::uint32_t> ids;
    for (std::uint64_t tokens = 0, i = 0; tokens < 20'000'000; ++i) {
      ids.resize(20 + random_bits(1, i) % 981);
      for (std::size_t t = 0; t < ids.size(); ++t) {
        ids[t] = static_cast<std::uint32_t>(random_bits(2, tokens + t) % vocabulary_size);
      }
      writer.add(ids, 4 * ids.size());
      tokens += ids.size();
    }
    writer.finish();
    shards_.emplace(folder_);
  }
  ~Corpus() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  const TokenShards& shards() const { return *shards_; }

 private:
  std::filesystem::path folder_;
  std::optional<TokenShards> shards_;
};

const TokenShards& corpus(std::int64_t vocabulary_size) {
  static const Corpus narrow(50'000), wide(128'256);
  return vocabulary_size == 50'000 ? narrow.shards() : wide.shards();
}

void count_tokens(benchmark::State& state, std::int64_t batch_tokens) {
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * batch_tokens),
                                                  benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

/// Arguments: vocabulary, sequence length, rows.
void packed_batches(benchmark::State& state) {
  const std::int64_t length = state.range(1), rows = state.range(2);
  auto source = packed_rows(corpus(state.range(0)), {.sequence_length = length, .seed = 1}) | batched(rows);
  benchmark::DoNotOptimize(source.next());  // plans the first epoch
  for (auto _ : state) benchmark::DoNotOptimize(source.next());
  count_tokens(state, rows * length);
}
BENCHMARK(packed_batches)
    ->Args({50'000, 2048, 8})
    ->Args({128'256, 2048, 8})
    ->Args({128'256, 8192, 2})
    ->Args({128'256, 256, 8});

/// The same for one of several ranks, which reads only its own rows. Argument: ranks.
void rank_batches(benchmark::State& state) {
  auto source = packed_rows(corpus(128'256), {.sequence_length = 2048, .seed = 1}) |
                batched(8, {.rank = state.range(0) - 1, .world = state.range(0)});
  benchmark::DoNotOptimize(source.next());
  for (auto _ : state) benchmark::DoNotOptimize(source.next());
  count_tokens(state, 8 * 2048);
}
BENCHMARK(rank_batches)->Arg(2)->Arg(4);

/// A mixture of two corpora, three rows of one to one of the other.
void mixed_batches(benchmark::State& state) {
  const auto rows = packed_rows(corpus(128'256), {.sequence_length = 2048, .seed = 1});
  const auto more = packed_rows(corpus(50'000), {.sequence_length = 2048, .seed = 1});
  auto source = mixed_rows(std::vector{MixturePart{rows, 3.0}, MixturePart{more, 1.0}}, 1) | batched(8);
  benchmark::DoNotOptimize(source.next());
  for (auto _ : state) benchmark::DoNotOptimize(source.next());
  count_tokens(state, 8 * 2048);
}
BENCHMARK(mixed_batches);

/// What a consumer waits for when batches are read ahead. Argument: threads.
void prefetched_batches(benchmark::State& state) {
  auto source = packed_rows(corpus(128'256), {.sequence_length = 2048, .seed = 1}) | batched(8) |
                prefetched(4, static_cast<std::size_t>(state.range(0)));
  benchmark::DoNotOptimize(source.next());
  for (auto _ : state) benchmark::DoNotOptimize(source.next());
  count_tokens(state, 8 * 2048);
}
BENCHMARK(prefetched_batches)->Arg(1)->Arg(2)->UseRealTime();

/// The order of an epoch and where each document ends in it.
void plan_epoch(benchmark::State& state) {
  const auto rows = packed_rows(corpus(128'256), {.sequence_length = 2048, .seed = 1});
  std::int64_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(rows.epoch(epoch++));
  state.counters["documents/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * corpus(128'256).document_count()),
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}
BENCHMARK(plan_epoch)->Unit(benchmark::kMillisecond);

/// Opening with every byte checked (1) or sizes only (0).
void open_shards(benchmark::State& state) {
  const auto& shards = corpus(128'256);
  const Verify verify = state.range(0) == 1 ? Verify::checksums : Verify::sizes;
  for (auto _ : state) benchmark::DoNotOptimize(TokenShards(shards.folder(), verify));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(4 * shards.token_count()));
}
BENCHMARK(open_shards)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
