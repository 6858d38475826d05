// A small program of many ranks, for the tests of launchers and of ranks that die: ranks STEPS [EVENT RANK STEP].
// Every step sums a number over the ranks and takes 20 ms; at STEP, RANK does what EVENT says: die, stop, hang, fail,
// leave. Prints one line when all went well. RANKS_TIMEOUT: the time-out in seconds.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include <ATen/ATen.h>

#include <ilme/core/error.hpp>
#include <ilme/dist/connect.hpp>

namespace {

using namespace ilme;

void happen(const std::string& event) {
  if (event == "die") ::raise(SIGKILL);
  if (event == "stop") ::raise(SIGSTOP);
  if (event == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (event == "fail") throw InputError("nothing to read");
}

void run(int steps, const std::string& event, int at_rank, int at_step) {
  dist::WorldOptions options;
  if (const char* timeout = std::getenv("RANKS_TIMEOUT")) {
    options.timeout = std::chrono::milliseconds(static_cast<int>(std::stod(timeout) * 1000));
    options.start_timeout = 4 * options.timeout;
  }
  const dist::World world = dist::connect(options);
  const auto [shard, replicate] = world.split(world.size % 2 == 0 ? 2 : 1);
  double total = 0;
  for (int step = 0; step < steps; ++step) {
    if (world.rank == at_rank && step == at_step) {
      happen(event);
      if (event == "leave") return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    at::Tensor number = at::tensor({1.0 * (world.rank + 1)}, at::kDouble);
    shard.all_reduce(number).wait();
    replicate.all_reduce(number).wait();
    total += number.item<double>();
  }
  if (total != steps * 0.5 * world.size * (world.size + 1)) throw RunError("the sum is ", total);
  std::printf("%s rank %d of %d, local %d of %d\n", world.launcher.c_str(), world.rank, world.size, world.local_rank,
              world.local_size);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 5) {
      run(std::stoi(argv[1]), argv[2], std::stoi(argv[3]), std::stoi(argv[4]));
    } else {
      run(argc > 1 ? std::stoi(argv[1]) : 1, "", -1, -1);
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
