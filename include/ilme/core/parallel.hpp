/// Loops over threads without a pool: for work that takes milliseconds and more.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ilme {

/// Threads to use when the caller asks for `requested`; 0 means all that the machine has.
inline std::size_t thread_count(std::size_t requested = 0) {
  return requested > 0 ? requested : std::max(1U, std::thread::hardware_concurrency());
}

/// Calls `body(i)` for every i in [0, count) on up to `threads` threads (0: all). Indices are handed out in ascending
/// order, one at a time. The first exception stops the rest and is rethrown here.
template <class Body>
void parallel_for(std::size_t count, std::size_t threads, Body&& body) {
  threads = std::min(thread_count(threads), count);
  if (threads <= 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 1; t < threads; ++t) workers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ilme
