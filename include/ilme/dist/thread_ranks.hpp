/// Ranks as threads of one process: for tests.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <ilme/dist/gloo.hpp>
#include <ilme/dist/world.hpp>

namespace ilme::dist {

/// Calls `body(World)` on `ranks` threads of this process, connected over Gloo, and returns when all have ended. If
/// some throw, the others' collectives fail within `timeout`, and the first failure is thrown again. torch's settings
/// that belong to a thread (autograd's modes, the number of threads) start at their defaults in each.
template <class Body>
void run_ranks(int ranks, Body&& body, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  // c10d's record of collectives, one a process, is not made for groups on several threads: they race in it.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(timeout);
  std::vector<std::exception_ptr> failures(ranks);
  std::atomic<int> first = -1;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      World world;  // it goes when the failure is noted: that closes this rank's connections, and the others fail too
      world.rank = world.local_rank = rank;
      world.size = world.local_size = ranks;
      try {
        std::vector<int> all(ranks);
        std::iota(all.begin(), all.end(), 0);
        world.all =
            Group(gloo_backends(store, "127.0.0.1", "", timeout), {rank, ranks, "world", std::move(all), nullptr});
        body(world);
      } catch (...) {
        failures[rank] = std::current_exception();
        int none = -1;
        first.compare_exchange_strong(none, rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first >= 0) std::rethrow_exception(failures[first]);
}

}  // namespace ilme::dist
