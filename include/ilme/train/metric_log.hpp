/// Where the figures of a run go: any number of sinks that take a step and named values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ilme::train {

/// Named figures of one moment, in the order in which they are shown.
using Metrics = std::vector<std::pair<std::string, double>>;

/// Hands each record to all its sinks: a metrics.jsonl file, TensorBoard, the console, one of your own.
class MetricLog {
 public:
  using Sink = std::function<void(std::int64_t step, const Metrics& metrics)>;

  void add(Sink sink) { sinks_.push_back(std::move(sink)); }
  void write(std::int64_t step, const Metrics& metrics) const {
    for (const Sink& sink : sinks_) sink(step, metrics);
  }

 private:
  std::vector<Sink> sinks_;
};

}  // namespace ilme::train
