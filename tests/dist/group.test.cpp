// Collectives between ranks that are threads.
#include "support/catch_torch.hpp"

#include <chrono>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/dist/thread_ranks.hpp>

using namespace ilme;
using dist::Group;
using dist::Pending;
using dist::World;

namespace {

// Catch2 counts assertions of one thread only: what the ranks find goes through this.
void require(bool holds, const std::string& what) {
  if (!holds) throw RunError("does not hold: ", what);
}

at::Tensor numbers(int rank, std::int64_t n, at::ScalarType dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1000 + rank);
  return at::randn({n}, generator, at::kFloat).to(dtype);
}

void check_collectives(const World& world) {
  const Group& group = world.all;
  const int rank = group.rank(), size = group.size();
  require(rank == world.rank && size == world.size, "rank and size");
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{300'001}}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const std::string where = concat("n ", n, ", dtype ", dtype, ", size ", size);

      std::vector<at::Tensor> inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(numbers(r, n, dtype));
      const at::Tensor expected = at::cat(inputs);
      at::Tensor output = at::full({size * n}, -1, dtype);
      group.all_gather(output, inputs[rank]).wait();
      require(output.equal(expected), "all_gather, " + where);
      output.fill_(-1);
      output.narrow(0, rank * n, n).copy_(inputs[rank]);
      group.all_gather(output, output.narrow(0, rank * n, n)).wait();
      require(output.equal(expected), "all_gather in place, " + where);

      // In the sum's dtype and the order of ranks, to the bit.
      const at::ScalarType sum_dtype = dtype == at::kDouble ? at::kDouble : at::kFloat;
      std::vector<at::Tensor> wide;
      for (int r = 0; r < size; ++r) wide.push_back(numbers(r, size * n, dtype));
      at::Tensor sum = at::zeros({n}, sum_dtype);
      for (int r = 0; r < size; ++r) sum += wide[r].narrow(0, rank * n, n).to(sum_dtype);
      at::Tensor reduced = at::full({n}, 5, sum_dtype);
      group.reduce_scatter(reduced, wide[rank], false).wait();
      require(reduced.equal(sum), "reduce_scatter, " + where);
      at::Tensor twice = reduced.clone();
      for (int r = 0; r < size; ++r) twice += wide[r].narrow(0, rank * n, n).to(sum_dtype);
      group.reduce_scatter(reduced, wide[rank], true).wait();
      require(reduced.equal(twice), "reduce_scatter that adds, " + where);

      at::Tensor total = inputs[rank].clone(), largest = inputs[rank].clone();
      group.all_reduce(total).wait();
      group.all_reduce_max(largest).wait();
      const at::Tensor stacked = at::stack(inputs).to(at::kDouble);
      require(largest.to(at::kDouble).equal(std::get<0>(stacked.max(0))), "all_reduce_max, " + where);
      const double tolerance = dtype == at::kBFloat16 ? 3e-2 : dtype == at::kHalf ? 4e-3 : 1e-5;
      require(at::allclose(total.to(at::kDouble), stacked.sum(0), tolerance, tolerance), "all_reduce, " + where);

      at::Tensor sent = rank == size - 1 ? inputs[size - 1].clone() : at::zeros({n}, dtype);
      group.broadcast(sent, size - 1);
      require(sent.equal(inputs[size - 1]), "broadcast, " + where);
    }
  }
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) texts.push_back(std::string(r * 3, 'a' + r) + '\0');
  require(group.all_gather_text(texts[rank]) == texts, "all_gather_text");
  require(group.all_gather_text("") == std::vector<std::string>(size), "all_gather_text of nothing");
}

}  // namespace

TEST_CASE("every collective, on 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) dist::run_ranks(ranks, check_collectives);
}

TEST_CASE("several collectives are under way at once, and repeats give the same bits") {
  constexpr int kRanks = 3, kRepeats = 20;
  constexpr std::int64_t kLength = 40'000;
  std::vector<std::vector<at::Tensor>> results(kRanks);
  dist::run_ranks(kRanks, [&](const World& world) {
    const Group second = world.all.duplicate();
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const at::Tensor input = numbers(world.rank, kRanks * kLength, at::kBFloat16);
      at::Tensor gathered = at::empty({kRanks * kRanks * kLength}, at::kBFloat16);
      at::Tensor other = at::empty_like(gathered);
      at::Tensor sum = at::zeros({kLength}), total = input.to(at::kFloat);
      std::vector<Pending> pending;
      pending.push_back(world.all.all_gather(gathered, input));
      pending.push_back(world.all.reduce_scatter(sum, input, true));
      pending.push_back(second.all_gather(other, input));
      pending.push_back(world.all.all_reduce(total));
      pending.push_back(world.all.reduce_scatter(sum, input, true));
      for (Pending& one : pending) {
        require(!one.done(), "a collective has to be waited for");
        one.wait();
        require(one.done(), "done after wait()");
      }
      require(gathered.equal(other), "two all-gathers");
      results[world.rank].push_back(at::cat({gathered.to(at::kFloat), sum, total}));
    }
  });
  for (const auto& repeats : results) {
    for (const at::Tensor& result : repeats) CHECK(result.equal(repeats.front()));
  }
  const std::int64_t totals = kRanks * kRanks * kLength + kLength;
  CHECK(results[0][0].slice(0, totals).equal(results[2][0].slice(0, totals)));
}

TEST_CASE("a world splits into groups that shard and groups that replicate") {
  dist::run_ranks(4, [](const World& world) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      auto [shard, replicate] = world.split(2);
      require(shard.size() == 2 && shard.rank() == world.rank % 2, "shard group");
      require(replicate.size() == 2 && replicate.rank() == world.rank / 2, "replicate group");
      at::Tensor sum = at::tensor({1.0 * world.rank}), across = sum.clone();
      shard.all_reduce(sum).wait();
      replicate.all_reduce(across).wait();
      require(sum.item<double>() == (world.rank / 2 == 0 ? 1 : 5), "sum of a shard group");
      require(across.item<double>() == 2 * (world.rank % 2) + 2, "sum across");
    }
    auto [shard, replicate] = world.split(4);
    require(shard.size() == 4 && replicate.size() == 1, "one shard group");
    try {
      world.split(3);
      require(false, "3 does not divide 4");
    } catch (const InputError&) {
    }
  });
}

TEST_CASE("the first failure of a rank ends all ranks and is thrown again") {
  const auto begin = std::chrono::steady_clock::now();
  const auto body = [](const World& world) {
    if (world.rank == 1) throw InputError("rank 1 is unwell");
    world.all.barrier();
    require(false, "no rank gets here");
  };
  CHECK_THROWS_WITH(dist::run_ranks(3, body), "rank 1 is unwell");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(50));
}

TEST_CASE("tensors that do not fit are refused") {
  const Group one;
  at::Tensor output = at::empty({4});
  CHECK_THROWS_AS(one.all_gather(output, at::empty({3})), c10::ValueError);
  CHECK_THROWS_AS(one.all_gather(output, at::empty({4}, at::kDouble)), c10::ValueError);
  CHECK_THROWS_AS(one.all_gather(output, at::empty({8}).slice(0, 0, 8, 2)), c10::ValueError);
  CHECK_THROWS_AS(one.reduce_scatter(output, at::empty({5}), false), c10::ValueError);
  CHECK_THROWS_AS(one.broadcast(output, 1), c10::ValueError);
}
