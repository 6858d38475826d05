/// How fast a tokenizer encodes a text on this machine, now.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ilme/text/metrics.hpp>
#include <ilme/text/text_sample.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::text {

/// Source bytes (of TextSample) a second, the documents one by one.
struct EncodeSpeed {
  double cold = 0.0;      // one thread, first pass of a new tokenizer: its word cache is empty
  double warm = 0.0;      // one thread, the best of two more passes
  double warm_all = 0.0;  // `threads` threads, the best of two passes after one that fills their caches
  std::size_t threads = 1;
};

/// Times passes over `sample`, of a large one its first 16 MiB; nothing else should run meanwhile. `threads` as for
/// encode.
inline EncodeSpeed measure_speed(const Tokenizer& tokenizer, const TextSample& sample, std::size_t threads = 0) {
  const Tokenizer fresh(tokenizer.model());
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 24;
  std::uint64_t bytes = 0;
  std::size_t documents = 0;
  while (documents < sample.documents.size() && bytes < kEnough) bytes += sample.documents[documents++].size();
  const auto pass = [&](std::size_t workers) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::size_t> tokens(workers);  // used, so that no compiler leaves the work out
    detail::for_each_index(documents, workers, [&](std::size_t thread, std::size_t i) {
      tokens[thread] += fresh.encode(sample.documents[i]).size();
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return static_cast<double>(bytes) / std::max(seconds.count(), 1e-9);
  };
  EncodeSpeed speed;
  speed.threads = detail::useful_threads(documents, threads);
  speed.cold = pass(1);
  speed.warm = std::max(pass(1), pass(1));
  speed.warm_all = speed.warm;
  if (speed.threads > 1) {
    pass(speed.threads);
    speed.warm_all = std::max(pass(speed.threads), pass(speed.threads));
  }
  return speed;
}

}  // namespace ilme::text
