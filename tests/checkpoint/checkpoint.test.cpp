#include "support/catch_torch.hpp"

#include <ilme/checkpoint/checkpoint.hpp>

#include <chrono>
#include <csignal>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <ilme/core/random.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using checkpoint::CheckpointStore;
using test::listing;

namespace {

checkpoint::Contents contents(std::int64_t step, std::int64_t size = 1000) {
  checkpoint::Contents result;
  result.files["model"] = optim::whole_slices({{"w", torch::full({size}, static_cast<double>(step))}});
  result.files["optimizer"] =
      optim::whole_slices({{"w.exp_avg", torch::full({size}, 0.5 * static_cast<double>(step))}});
  result.state = {{"step", step}, {"learning_rate", 0.1 / 3}};
  return result;
}

/// The state is of one step throughout.
bool whole(const checkpoint::Loaded& loaded) {
  return loaded.state["step"].get<std::int64_t>() == loaded.step &&
         torch::all(loaded.file("model").tensor("w") == static_cast<double>(loaded.step)).item<bool>() &&
         torch::all(loaded.file("optimizer").tensor("w.exp_avg") == 0.5 * static_cast<double>(loaded.step))
             .item<bool>();
}

/// Runs `body` in a child process and gives its exit code, or minus its signal.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("a checkpoint round trip keeps every bit") {
  test::TemporaryFolder folder;
  CheckpointStore store(folder / "run");
  CHECK_FALSE(store.load_latest({}));
  CHECK_FALSE(store.latest_step());
  store.save(10, contents(10));
  store.save(123456789, contents(123456789));
  CHECK(listing(folder / "run") == std::vector<std::string>{"step-00000010", "step-123456789"});
  CHECK(listing(folder / "run/step-00000010") ==
        std::vector<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"});
  const auto loaded = CheckpointStore(folder / "run").load_latest({});
  REQUIRE(loaded);
  CHECK(loaded->step == 123456789);
  CHECK(loaded->state["learning_rate"].get<double>() == 0.1 / 3);
  CHECK_THROWS_WITH(loaded->file("ema"), ContainsSubstring("ema.safetensors"));
  const auto older = store.load((folder / "run/step-00000010") / "");
  CHECK(older.step == 10);
  CHECK(whole(older));
  CHECK_THROWS_AS(store.load(folder / "run/step-00000011"), InputError);
  CHECK_THROWS_AS(store.save(-1, contents(0)), InputError);
}

TEST_CASE("ckpt-torn-save: every kind of damage is recognised and the older checkpoint is used") {
  test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(2, contents(2));
  store.save(4, contents(4));
  const auto newest = folder / "step-00000004";
  for (const std::string& name : listing(newest)) {
    const std::string good = read_file(newest / name);
    const auto expect_older = [&](const std::string& how) {
      CAPTURE(name, how);
      std::vector<std::string> warnings;
      const auto loaded =
          CheckpointStore(folder.path()).load_latest([&](const std::string& w) { warnings.push_back(w); });
      REQUIRE(loaded);
      CHECK(loaded->step == 2);
      CHECK(whole(*loaded));
      REQUIRE(warnings.size() == 1);
      CHECK_THAT(warnings[0], ContainsSubstring((newest / name).string()));
      CHECK_THROWS_WITH(CheckpointStore(folder.path()).load(newest), ContainsSubstring(name));
    };
    for (const std::size_t length : {std::size_t{0}, good.size() / 2, good.size() - 1}) {
      write_file(newest / name, good.substr(0, length));
      if (name == "manifest.json" && length == good.size() - 1) continue;  // only the final newline: nothing is lost
      expect_older("cut to " + std::to_string(length));
    }
    for (const std::size_t at : {good.size() / 2, good.size() / 3, std::size_t{9}}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      write_file(newest / name, bad);
      expect_older("flip at " + std::to_string(at));
    }
    std::filesystem::remove(newest / name);
    expect_older("deleted");
    write_file(newest / name, good);
  }
  CHECK(store.load_latest({})->step == 4);

  // Only damaged ones left: an error, never a fresh start.
  std::filesystem::remove_all(folder / "step-00000002");
  write_file(newest / "model.safetensors", "x");
  CHECK_THROWS_WITH(store.load_latest({}), ContainsSubstring("model.safetensors") && ContainsSubstring("damaged"));
  std::filesystem::remove(newest / "manifest.json");
  CHECK_THROWS_WITH(store.load_latest({}), ContainsSubstring("manifest.json"));
}

TEST_CASE("every byte of the manifest is covered") {
  test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(4, contents(4, 10));
  const auto path = folder / "step-00000004/manifest.json";
  const std::string good = read_file(path);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    { std::ofstream(path, std::ios::binary) << bad; }
    CAPTURE(at);
    if (std::isspace(static_cast<unsigned char>(bad[at]))) continue;
    CHECK_THROWS_AS(CheckpointStore(folder.path()).load_latest({}), InputError);
  }
}

TEST_CASE("a checkpoint that was about to be replaced is put back") {
  test::TemporaryFolder folder;
  CheckpointStore(folder.path()).save(4, contents(4));
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  // Where folders cannot be exchanged, a process may die between moving the old one away and the new one in.
  const auto hidden = folder / concat(".step-00000004.unfinished-", gone);
  std::filesystem::create_directories(hidden);
  std::filesystem::rename(folder / "step-00000004", hidden.string() + "-old");
  CHECK(whole(*CheckpointStore(folder.path()).load_latest({})));
  CheckpointStore(folder.path()).save(6, contents(6));
  CHECK(listing(folder.path()) == std::vector<std::string>{"step-00000004", "step-00000006"});
}

TEST_CASE("a manifest from before there were metrics still counts") {
  test::TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(4, contents(4));
  const auto path = folder / "step-00000004/manifest.json";
  Json json = read_json(path);
  json.erase("metrics");
  json.erase("checksum");
  json["checksum"] = checkpoint::crc32_text(json.dump());
  write_json(path, json);
  CHECK(whole(*store.load_latest({})));
}

TEST_CASE("rotation keeps the newest of this run and leaves other runs alone") {
  test::TemporaryFolder folder;
  {
    CheckpointStore old_run(folder.path(), 1);
    old_run.save(800, contents(800));
    old_run.save(900, contents(900));
    CHECK(listing(folder.path()) == std::vector<std::string>{"step-00000900"});
  }
  CheckpointStore fresh(folder.path(), 1);
  fresh.save(2, contents(2));
  fresh.save(4, contents(4));
  CHECK(listing(folder.path()) == std::vector<std::string>{"step-00000004", "step-00000900"});
  CHECK(fresh.latest_step() == 4);

  // A resumed run goes on as the same run.
  CheckpointStore resumed(folder.path(), 2);
  CHECK(resumed.load_latest({})->step == 4);
  resumed.save(6, contents(6));
  resumed.save(8, contents(8));
  resumed.save(8, contents(8));  // the same step again
  CHECK(listing(folder.path()) == std::vector<std::string>{"step-00000006", "step-00000008", "step-00000900"});
  CHECK(whole(*resumed.load_latest({})));

  // Back to an older step: what is saved from there is the newest.
  CheckpointStore back(folder.path(), 0);
  back.load(folder / "step-00000006");
  back.save(7, contents(7));
  CHECK(CheckpointStore(folder.path()).load_latest({})->step == 7);
  CHECK_THROWS_AS(CheckpointStore(folder.path(), -1), InputError);
}

TEST_CASE("foreign folders are ignored, leftovers of dead processes are cleaned up") {
  test::TemporaryFolder folder;
  const int dead = in_child([] { return 0; });
  REQUIRE(dead == 0);
  for (const char* name : {"step-6", "step-6.tmp", "step-", "step-x", "notes"}) {
    std::filesystem::create_directories(folder / name);
  }
  write_file(folder / "step-6/readme.txt", "not ours");
  write_file(folder / "step-6.tmp/model.safetensors", "unfinished");
  std::vector<std::string> warnings;
  CHECK_FALSE(CheckpointStore(folder.path()).load_latest([&](const std::string& w) { warnings.push_back(w); }));
  CHECK(warnings.empty());
  pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  std::filesystem::create_directories(folder / concat(".step-00000006.unfinished-", gone));
  std::filesystem::create_directories(folder / concat(".step-00000006.unfinished-", ::getppid()));
  CheckpointStore store(folder.path(), 1);
  store.save(2, contents(2));
  store.save(4, contents(4));
  CHECK_FALSE(std::filesystem::exists(folder / concat(".step-00000006.unfinished-", gone)));
  CHECK(std::filesystem::exists(folder / concat(".step-00000006.unfinished-", ::getppid())));
  CHECK(std::filesystem::exists(folder / "step-6/readme.txt"));
  CHECK(store.load_latest({})->step == 4);
}

TEST_CASE("kill -9 while saving leaves a complete checkpoint") {
  test::TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  CheckpointStore(folder.path()).save(1, contents(1, 20000));
  const std::chrono::duration<double, std::micro> one_save = std::chrono::steady_clock::now() - start;
  std::int64_t last = 1;
  // At least 20 kills within the time of some saves, and more of them if the disk was too slow for any to succeed.
  for (int round = 0; round < 20 || (last == 1 && round < 200); ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        CheckpointStore store(folder.path(), 1);
        std::int64_t step = store.load_latest({})->step;
        for (;;) {
          ++step;
          store.save(step, contents(step, 20000));
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(2000 + random_uniform(7, round) * std::min(5 * one_save.count(), 5e5)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    CheckpointStore store(folder.path(), 1);
    std::vector<std::string> warnings;
    const auto loaded = store.load_latest([&](const std::string& w) { warnings.push_back(w); });
    REQUIRE(loaded);
    CHECK(warnings.empty());
    CHECK(whole(*loaded));
    CHECK(loaded->step >= last);
    last = loaded->step;
  }
  CHECK(last > 1);
  CheckpointStore store(folder.path(), 1);
  store.load_latest({});
  store.save(last + 1, contents(last + 1));
  CHECK(listing(folder.path()) == std::vector<std::string>{checkpoint::step_name(last + 1)});
}

TEST_CASE("a full disk is an error and leaves the older checkpoint") {
  test::TemporaryFolder folder;
  SECTION("file size limit") {
    CheckpointStore(folder.path(), 1).save(2, contents(2));
    const int code = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{100000, 100000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      try {
        CheckpointStore(folder.path(), 1).save(4, contents(4, 1 << 20));
      } catch (const RunError& error) {
        return std::string(error.what()).find("cannot write") != std::string::npos ? 7 : 8;
      }
      return 0;
    });
    CHECK(code == 7);
    CHECK(listing(folder.path()) == std::vector<std::string>{"step-00000002"});
  }
  SECTION("a tmpfs of 1 MB") {
    std::filesystem::create_directories(folder / "small");
    if (::mount("tmpfs", (folder / "small").c_str(), "tmpfs", 0, "size=1m") != 0) SKIP("mount is not permitted");
    CheckpointStore store(folder / "small", 1);
    store.save(2, contents(2));
    CHECK_THROWS_WITH(store.save(4, contents(4, 1 << 20)), ContainsSubstring("No space left"));
    CHECK(listing(folder / "small") == std::vector<std::string>{"step-00000002"});
    CHECK(store.load_latest({})->step == 2);
    store.save(6, contents(6));
    CHECK(store.latest_step() == 6);
    ::umount((folder / "small").c_str());
  }
}

TEST_CASE("the newest whole checkpoint of a run from before a step") {
  test::TemporaryFolder folder;
  CheckpointStore(folder.path()).save(5, contents(5));  // another run's
  CheckpointStore store(folder.path());
  CHECK_FALSE(store.load_before(9, {}));
  for (const std::int64_t step : {10, 20, 30}) store.save(step, contents(step));
  CHECK(store.load_before(31, {})->step == 30);
  CHECK(store.load_before(30, {})->step == 20);
  CHECK_FALSE(store.load_before(10, {}));
  store.save(10, contents(10));  // as after going back
  CHECK(whole(*store.load_before(30, {})));
  CHECK(store.load_before(30, {})->step == 10);
  std::filesystem::resize_file(folder / "step-00000010/state.json", 3);
  std::vector<std::string> warnings;
  CHECK(store.load_before(30, [&](const std::string& warning) { warnings.push_back(warning); })->step == 20);
  CHECK(warnings.size() == 1);
}
