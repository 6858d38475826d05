#include "support/catch_torch.hpp"

#include <atomic>
#include <stdexcept>

#include <ilme/checkpoint/background_saver.hpp>
#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/dist/thread_ranks.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using checkpoint::CheckpointStore;
using checkpoint::Contents;
using dist::World;
using test::listing;

namespace {

// Catch2 counts assertions of one thread only: what the ranks find goes through these.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("does not hold: " + what);
}
template <class Body>
void require_error(Body&& body, const std::vector<std::string>& words) {
  std::string text = "no error";
  try {
    body();
  } catch (const Error& error) {
    text = error.what();
  }
  for (const std::string& word : words) require(text.find(word) != std::string::npos, word + " in: " + text);
}

/// Rank `rank` of `size` has a consecutive part, maybe none.
optim::ParameterSlice part_of(const std::string& name, const at::Tensor& whole, int rank, int size) {
  const std::int64_t begin = whole.numel() * rank / size, end = whole.numel() * (rank + 1) / size;
  return {name, whole.flatten().slice(0, begin, end), whole.sizes().vec(), begin};
}

/// What a checkpoint of a step holds, by group and name; the same whatever the ranks.
std::map<std::string, io::NamedTensors> wholes(std::int64_t step) {
  const auto value = static_cast<double>(step);
  const at::Tensor matrix = torch::arange(77, torch::kFloat).view({11, 7}) + value;
  return {{"model",
           {{"matrix", matrix.to(torch::kBFloat16)},
            {"vector", torch::arange(3, torch::kFloat) + value},
            {"none", torch::empty({0, 4})}}},
          {"optimizer", {{"matrix.exp_avg", matrix * 0.5}, {"matrix.step", torch::full({}, value)}}}};
}

Contents contents(std::int64_t step, int rank, int size) {
  Contents result;
  for (const auto& [group, tensors] : wholes(step)) {
    for (const auto& [name, tensor] : tensors) {
      const bool replicated = name == "matrix.step" || name == "none";
      result.files[group].push_back(replicated ? optim::whole_slices({{name, tensor}})[0]
                                               : part_of(name, tensor, rank, size));
    }
  }
  result.state = {{"step", step}};
  return result;
}

Contents contents(std::int64_t step, const World& world) { return contents(step, world.rank, world.size); }

void check_whole(const checkpoint::Loaded& loaded, const World& world) {
  require(loaded.state.at("step") == loaded.step, "the state's step");
  for (const auto& [group, tensors] : wholes(loaded.step)) {
    const auto& file = loaded.file(group);
    require(file.names().size() == tensors.size(), "number of tensors of " + group);
    for (const auto& [name, tensor] : tensors) {
      require(torch::equal(file.tensor(name), tensor), name);
      const optim::ParameterSlice wanted = part_of(name, tensor, world.rank, world.size);
      at::Tensor part = torch::empty_like(wanted.tensor, torch::kDouble);
      file.copy_range_to(name, wanted.begin, part);
      require(torch::equal(part, wanted.tensor.to(torch::kDouble)), "part of " + name);
    }
  }
}

}  // namespace

TEST_CASE("what any number of ranks saved, any number loads") {
  test::TemporaryFolder folder;
  for (int saving = 1; saving <= 4; ++saving) {
    const auto root = folder / std::to_string(saving);
    dist::run_ranks(saving, [&](const World& world) {
      CheckpointStore store(root, 1, world.all);
      store.save(2, contents(2, world));
      store.save(4, contents(4, world));
    });
    CHECK(listing(root) == std::vector<std::string>{"step-00000004"});
    CHECK(listing(root / "step-00000004").size() == static_cast<std::size_t>(2 + 2 * saving));
    for (int loading = 1; loading <= 4; ++loading) {
      CAPTURE(saving, loading);
      dist::run_ranks(loading, [&](const World& world) {
        CheckpointStore store(root, 1, world.all);
        check_whole(*store.load_latest({}), world);
        if (loading == 2) store.save(6 + saving, contents(6 + saving, world));  // goes on as the same run
      });
    }
    CHECK(listing(root) == std::vector<std::string>{checkpoint::step_name(6 + saving)});
  }
}

TEST_CASE("pieces that several ranks have are written once, by all of them together") {
  test::TemporaryFolder folder;
  const at::Tensor a = torch::arange(4000, torch::kFloat), b = torch::arange(4000, torch::kInt).view({40, 100});
  dist::run_ranks(4, [&](const World& world) {
    CheckpointStore store(folder / "run", 0, world.all);
    Contents mine;
    mine.files["model"] = {part_of("a", a, world.rank % 2, 2), part_of("b", b, world.rank % 2, 2)};
    const checkpoint::Share share = store.share(mine);
    require(share.bytes == 8000, concat("bytes ", share.bytes));
    require(share.host_bytes == 32000, "host_bytes");
    store.save(1, share);
  });
  const auto loaded = CheckpointStore(folder / "run").load_latest({});
  CHECK(torch::equal(loaded->file("model").tensor("a"), a));
  CHECK(torch::equal(loaded->file("model").tensor("b"), b));
}

TEST_CASE("ckpt-torn-save: what any rank finds damaged, all pass over, and say it once") {
  test::TemporaryFolder folder;
  dist::run_ranks(2, [&](const World& world) {
    CheckpointStore store(folder.path(), 0, world.all);
    store.save(2, contents(2, world));
    store.save(4, contents(4, world));
    const auto newest = folder / "step-00000004";
    const auto files = listing(newest);
    require(files.size() == 6, "six files");
    for (const std::string& name : files) {
      const std::string good = read_file(newest / name);
      std::string flipped = good;
      flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
      for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), good.substr(0, good.size() - 2),
                                     flipped, std::string("deleted")}) {
        world.all.barrier();
        if (world.rank == 0) {
          write_file(newest / name, bad);
          if (bad == "deleted") std::filesystem::remove(newest / name);
        }
        world.all.barrier();
        std::vector<std::string> warnings;
        const auto loaded = store.load_latest([&](const std::string& text) { warnings.push_back(text); });
        require(loaded->step == 2, "the older one is used: " + name);
        check_whole(*loaded, world);
        require(warnings.size() == (world.rank == 0 ? 1 : 0), "one warning");
        if (world.rank == 0) require(warnings[0].find((newest / name).string()) != std::string::npos, warnings[0]);
        require_error([&] { store.load(newest); }, {name});
      }
      if (world.rank == 0) write_file(newest / name, good);
      world.all.barrier();
    }
    require(store.load_latest({})->step == 4, "the good one is used");
    world.all.barrier();
    if (world.rank == 0) {
      for (const char* step : {"step-00000002", "step-00000004"}) write_file(folder / step / "state.json", "x");
    }
    world.all.barrier();
    require_error([&] { store.load_latest({}); }, {"no usable checkpoint"});
  });
}

TEST_CASE("ckpt-torn-save: a rank that dies after another has finished its part leaves no checkpoint") {
  test::TemporaryFolder folder;
  std::atomic<bool> refused = false;
  const auto body = [&](const World& world) {
    if (world.rank == 1) {
      // What CheckpointStore::save does up to the point where rank 0 writes.
      const dist::Group group = world.all.duplicate();
      checkpoint::share_of(group, contents(2, world));
      checkpoint::on_all_ranks(group, [] { return std::string(); });
      throw RunError("killed");
    }
    CheckpointStore store(folder / "run", 0, world.all);
    try {
      store.save(2, contents(2, world));
    } catch (const RunError&) {
      refused = true;
    }
  };
  CHECK_THROWS_WITH(dist::run_ranks(2, body, std::chrono::seconds(10)), ContainsSubstring("killed"));
  CHECK(refused);
  CHECK(listing(folder / "run").empty());
}

TEST_CASE("a failure on one rank is an error on all, and changes nothing") {
  test::TemporaryFolder folder;
  dist::run_ranks(3, [&](const World& world) {
    CheckpointStore store(folder.path(), 1, world.all);
    store.save(2, contents(2, world));
    Contents bad = contents(4, world);
    if (world.rank == 1) bad.files["model"].push_back({"c", torch::zeros({2}, torch::kComplexFloat), {2}, 0});
    require_error([&] { store.save(4, bad); }, {"ComplexFloat", "(rank 1)"});
    world.all.barrier();  // rank 0 has cleaned up
    require(listing(folder.path()) == std::vector<std::string>{"step-00000002"}, "nothing is changed");

    // Parts that make no whole.
    Contents gap = contents(4, world);
    if (world.rank == 2) gap.files["optimizer"].erase(gap.files["optimizer"].begin());
    require_error([&] { store.save(4, gap); }, {"matrix.exp_avg", "element 51 of 77"});
    Contents unlike = contents(4, world);
    if (world.rank == 2) unlike.files["model"][0].shape = {7, 11};
    require_error([&] { store.save(4, unlike); }, {"on rank 2"});
    store.save(6, contents(6, world));
    require(store.load_latest({})->step == 6, "the run goes on");
  });
}

TEST_CASE("files whose pieces do not fit are refused") {
  test::TemporaryFolder folder;
  int count = 0;
  const auto file = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& shape, std::int64_t begin) {
    const auto path = folder / concat(++count, ".safetensors");
    checkpoint::save_slices(path, {{"w", tensor, shape, begin}});
    return io::SafetensorsFile(path);
  };
  const at::Tensor two = torch::ones({2}), three = torch::ones({3});
  const checkpoint::SlicedTensors good({file(three, {5}, 2), file(two, {5}, 0)});
  CHECK(torch::equal(good.tensor("w"), torch::ones({5})));
  CHECK_THROWS_WITH(good.copy_range_to("w", 3, three), ContainsSubstring("5 elements"));
  CHECK_THROWS_WITH(good.tensor("v"), ContainsSubstring("holds no tensor"));
  CHECK_THROWS_WITH(good.copy_to("w", three), ContainsSubstring("shape"));
  const auto joined = [&](io::SafetensorsFile a, io::SafetensorsFile b) {
    return [files = std::vector{std::move(a), std::move(b)}] { checkpoint::SlicedTensors{files}; };
  };
  CHECK_THROWS_WITH(joined(file(two, {6}, 0), file(three, {6}, 3))(), ContainsSubstring("a gap"));
  CHECK_THROWS_WITH(joined(file(two, {6}, 0), file(three, {6}, 1))(), ContainsSubstring("an overlap"));
  CHECK_THROWS_WITH(joined(file(two, {6}, 0), file(three, {6}, 2))(), ContainsSubstring("elements 5 to 6"));
  CHECK_THROWS_WITH(joined(file(two, {4}, 0), file(three, {4}, 2))(), ContainsSubstring("more than the 4"));
  CHECK_THROWS_WITH(joined(file(two, {5}, 0), file(three, {1, 5}, 2))(), ContainsSubstring("[1, 5]"));
  CHECK_THROWS_WITH(joined(file(two, {5}, 0), file(three.to(torch::kHalf), {5}, 2))(), ContainsSubstring("F16"));
}

TEST_CASE("saving in the background writes what there was, and its errors come out") {
  test::TemporaryFolder folder;
  dist::run_ranks(2, [&](const World& world) {
    CheckpointStore store(folder / "run", 0, world.all);
    // One rank may write at once.
    using checkpoint::Background;
    checkpoint::BackgroundSaver saver(store, world.rank == 0 ? Background::always : Background::never);
    for (const std::int64_t step : {2, 4}) {
      const Contents live = contents(step, world);
      saver.save(step, live);
      for (const auto& [group, slices] : live.files) {
        for (const auto& slice : slices) slice.tensor.zero_();  // training goes on
      }
      world.all.barrier();
    }
    saver.wait();
    require(saver.done(), "done after wait");
    check_whole(store.load(folder / "run/step-00000002"), world);
    check_whole(store.load(folder / "run/step-00000004"), world);

    if (world.rank == 0) write_file(folder / "file", "in the way");
    world.all.barrier();
    CheckpointStore unwritable(folder / "file", 0, world.all);
    checkpoint::BackgroundSaver failing(unwritable, Background::always);
    failing.save(2, contents(2, world));
    require_error([&] { failing.save(4, contents(4, world)); }, {"file", "(rank 0)"});
    failing.save(4, contents(4, world));
    require_error([&] { failing.wait(); }, {"file"});
    failing.wait();
  });
  CHECK(checkpoint::parse_background("auto") == checkpoint::Background::automatic);
  CHECK_THROWS_AS(checkpoint::parse_background("yes"), InputError);
}

TEST_CASE("the best checkpoint by a metric stays, beside the newest") {
  test::TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep_last = 1, .keep_best = "loss"});
  const auto save = [&](std::int64_t step, const std::map<std::string, double>& metrics) {
    store.save(step, contents(step, 0, 1), metrics);
    return listing(folder.path());
  };
  using Names = std::vector<std::string>;
  save(1, {});
  CHECK(save(2, {{"loss", 3.0}, {"other", 1.0}}) == Names{"step-00000002"});
  CHECK(save(3, {{"loss", 4.0}}) == Names{"step-00000002", "step-00000003"});
  CHECK(save(4, {{"loss", std::numeric_limits<double>::quiet_NaN()}}) == Names{"step-00000002", "step-00000004"});
  CHECK(save(5, {{"loss", 2.0}}) == Names{"step-00000005"});
  CHECK(save(6, {}) == Names{"step-00000005", "step-00000006"});
  CHECK(store.load_latest({})->step == 6);
  CheckpointStore highest(folder.path(), {.keep_last = 1, .keep_best = "loss", .higher_is_better = true});
  highest.load_latest({});
  highest.save(7, contents(7, 0, 1), {{"loss", 9.0}});
  CHECK(listing(folder.path()) == Names{"step-00000007"});
}
