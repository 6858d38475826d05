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

/// Hands each record, and each event that has words, to all its sinks: a metrics.jsonl file, TensorBoard, the console,
/// one of your own.
class MetricLog {
 public:
  using Sink = std::function<void(std::int64_t step, const Metrics& metrics)>;

  using NoteSink = std::function<void(std::int64_t step, const std::string& name, const std::string& text)>;

  void add(Sink sink) { sinks_.push_back(std::move(sink)); }
  void add_notes(NoteSink sink) { note_sinks_.push_back(std::move(sink)); }
  void write(std::int64_t step, const Metrics& metrics) const {
    for (const Sink& sink : sinks_) sink(step, metrics);
  }
  void note(std::int64_t step, const std::string& name, const std::string& text) const {
    for (const NoteSink& sink : note_sinks_) sink(step, name, text);
  }

 private:
  std::vector<Sink> sinks_;
  std::vector<NoteSink> note_sinks_;
};

}  // namespace ilme::train
