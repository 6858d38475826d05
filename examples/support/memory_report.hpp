/// --memory-report: what a run will take of memory and which batch would fit, said before it starts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/json.hpp>
#include <ilme/core/memory_size.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/train/memory_report.hpp>
#include <ilme/train/phases.hpp>

namespace ilme {

struct MemoryOptions {
  bool report = false;
  std::string limit;

  void add_to(CLI::App& app) {
    app.add_flag("--memory-report", report,
                 "Before the first step, say what weights, gradients, optimizer and activations take, and the largest "
                 "--batch-size that fits, from a few small batches that are tried; also as memory.json in --output");
    app.add_option("--memory-limit", limit,
                   "Memory that the process may take, for --memory-report, as 16GiB; default: what it has and what "
                   "the machine has free")
        ->type_name("SIZE");
  }

  std::int64_t limit_bytes() const {
    if (!limit.empty()) return static_cast<std::int64_t>(parse_memory_size(limit, "--memory-limit"));
    return static_cast<std::int64_t>(available_memory().value_or(0) + resident_bytes().value_or(0));
  }
};

/// Says the report of a run that trains as `phases` say with `rows` rows a micro-batch, and writes it to `file`.
template <class Trainer, class Loss>
void report_memory(const MemoryOptions& memory, Trainer& trainer, const Loss& loss,
                   const std::vector<train::Phase>& phases, std::int64_t rows,
                   const train::MemoryReportOptions& options, const std::filesystem::path& file) {
  const std::int64_t limit = memory.limit_bytes();
  // All that trains in any phase, as the last phase has it in most runs.
  const auto parameters = trainer.optimizer().named_parameters();
  std::vector<bool> before;
  for (const auto& [name, parameter] : parameters) {
    before.push_back(parameter.requires_grad());
    parameter.set_requires_grad(std::any_of(
        phases.begin(), phases.end(), [&, &name = name](const auto& phase) { return train::trains(phase, name); }));
  }
  const train::MemoryReport report =
      train::measure_memory(trainer.model(), loss, trainer.optimizer(), trainer.gradients(), options);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].second.set_requires_grad(before[i]);
  std::fprintf(stderr, "memory, from batches that were tried:\n%s", report.table(rows, limit).c_str());
  if (report.total(rows) > limit) {
    std::fprintf(
        stderr,
        "warning: the batch is larger than what fits; fewer --batch-size and more --accumulate learn the same\n");
  }
  write_json(file, report.json(rows, limit));
}

}  // namespace ilme
