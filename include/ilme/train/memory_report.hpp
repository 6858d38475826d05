/// What a training run will take of memory, measured on small batches before it starts.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/data/batch.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/concepts.hpp>
#include <ilme/optim/gradients.hpp>
#include <ilme/text/text_table.hpp>

namespace ilme::train {

struct MemoryReportOptions {
  std::int64_t sequence_length = 1024;
  std::int64_t vocabulary_size = 1;    ///< the ids of the batches that are tried lie below
  bool accumulate = false;             ///< gradients of earlier micro-batches are there when a backward begins
  bool optimizer_in_backward = false;  ///< gradients are freed one by one
};

/// Bytes by what takes them. The peak of a step is made of moments of its backward, and which of them is the highest
/// depends on the batch: early all activations are there and no gradients, late it is the other way round.
/// What tensors take is foreseen within a few percent; not what oneDNN comes to keep for products of shapes that were
/// not tried (core/allocator.hpp bounds it), which can be a quarter of the process where the batch is small.
class MemoryReport {
 public:
  /// Bytes beyond the model and the optimizer's state: fixed + rows * per_row from `from` rows on; with fewer, between
  /// `one` and that (what is cut into chunks does not grow for ever).
  struct Moment {
    double fixed = 0, per_row = 0;
    std::int64_t from = 1;
    double one = 0;

    double bytes(std::int64_t rows) const {
      const auto line = [&](std::int64_t n) { return fixed + static_cast<double>(n) * per_row; };
      if (rows >= from) return line(rows);
      return one + (line(from) - one) * static_cast<double>(rows - 1) / static_cast<double>(from - 1);
    }
  };

  std::int64_t weights = 0, gradients = 0, optimizer_state = 0;
  std::int64_t program = 0;  ///< code, libraries and caches of the process, other tensors
  double overhead = 0;       ///< what the heap takes beyond tensors in a step, as a share of step_bytes
  std::vector<Moment> moments;

  /// The peak above the other parts: gradients that exist by then, activations, temporaries.
  std::int64_t step_bytes(std::int64_t rows) const {
    double peak = 0;
    for (const Moment& moment : moments) peak = std::max(peak, moment.bytes(rows));
    return static_cast<std::int64_t>(peak);
  }
  /// Activations and temporaries, beyond all gradients.
  std::int64_t activations(std::int64_t rows) const { return std::max<std::int64_t>(step_bytes(rows) - gradients, 0); }
  std::int64_t heap_overhead(std::int64_t rows) const {
    return static_cast<std::int64_t>(overhead * static_cast<double>(step_bytes(rows)));
  }
  std::int64_t total(std::int64_t rows) const {
    return program + weights + optimizer_state + step_bytes(rows) + heap_overhead(rows);
  }

  /// The largest number of rows whose total is within the limit; 0 when not even one is.
  std::int64_t largest_batch(std::int64_t limit) const {
    std::int64_t rows = 0;
    for (std::int64_t add = std::int64_t{1} << 30; add > 0; add /= 2) {
      if (total(rows + add) <= limit) rows += add;
    }
    return rows;
  }

  Json json(std::int64_t rows, std::int64_t limit) const {
    return {{"batch_size", rows},
            {"weights", weights},
            {"gradients", gradients},
            {"optimizer_state", optimizer_state},
            {"activations", activations(rows)},
            {"heap_overhead", heap_overhead(rows)},
            {"program", program},
            {"total", total(rows)},
            {"limit", limit},
            {"largest_batch_size", largest_batch(limit)}};
  }

  std::string table(std::int64_t rows, std::int64_t limit) const {
    text::TextTable table;
    const auto add = [&](const std::string& name, std::int64_t bytes) {
      table.add({name, format_bytes(static_cast<double>(bytes))});
    };
    add("weights", weights);
    add("gradients", gradients);
    add("optimizer state", optimizer_state);
    add("activations and temporaries", activations(rows));
    add("gaps in the heap", heap_overhead(rows));
    add("program", program);
    add("sum, at " + std::to_string(rows) + (rows == 1 ? " row" : " rows"), total(rows));
    add("limit", limit);
    table.add({"largest batch within it", std::to_string(largest_batch(limit)) + " rows"});
    return table.str();
  }
};

namespace detail {

/// Rows of one document each in which every label counts: the most that a batch of this shape can take.
inline data::PackedBatch full_batch(std::int64_t rows, const MemoryReportOptions& options) {
  data::PackedBatch batch;
  batch.rows = rows;
  batch.sequence_length = options.sequence_length;
  batch.token_count = rows * options.sequence_length;
  batch.sequence_offsets.push_back(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t t = 0; t < options.sequence_length; ++t) {
      batch.input_ids.push_back((row * 31 + t) % options.vocabulary_size);
      batch.labels.push_back((row * 31 + t + 1) % options.vocabulary_size);
      batch.position_ids.push_back(t);
    }
    batch.sequence_offsets.push_back((row + 1) * options.sequence_length);
  }
  return batch;
}

/// Peaks above what was held at the start, of the parts of a forward and backward that completed gradients divide; each
/// gradient is freed then, and its size is in `freed`. One part when gradients are to stay.
struct StepPeaks {
  std::vector<std::int64_t> peaks, freed;
};

template <class Model, class Loss>
StepPeaks step_peaks(Model& model, Loss& loss, optim::Gradients& sink, std::int64_t rows,
                     const MemoryReportOptions& options) {
  const data::Batch batch = data::collate(full_batch(rows, options));
  StepPeaks found;
  std::optional<ops::MemoryPhase> phase(std::in_place, batch.input_ids.device());
  const std::int64_t start = phase->start_bytes();
  if (!options.accumulate) {
    sink.redirect([&](std::size_t, at::Tensor gradient) {
      found.peaks.push_back(phase->peak_bytes() - start);
      found.freed.push_back(static_cast<std::int64_t>(gradient.nbytes()));
      gradient.reset();
      phase.reset();
      phase.emplace(batch.input_ids.device());
    });
  }
  {
    const at::Tensor hidden = model.hidden(batch);
    loss(hidden, model.lm_head_weight(), batch.labels).sum.backward();
  }
  found.peaks.push_back(phase->peak_bytes() - start);
  found.freed.push_back(0);
  sink.redirect({});
  return found;
}

}  // namespace detail

/// Runs forward and backward of a few rows on the model itself and extrapolates. `sink` is that of the optimizer's
/// parameters, empty; it is empty again afterwards, and weights, optimizer and the random generator are as before. The
/// model must be in the mode that it trains in, with requires_grad as in the run. CPU tensors must have been counted
/// since before the model was made (ops::count_tensor_memory).
template <nn::CausalModel Model, loss::LossModule Loss, optim::Optimizer Optimizer>
requires requires(const Optimizer& optimizer) {
  { optimizer.state_bytes() } -> std::convertible_to<std::int64_t>;
}
MemoryReport measure_memory(Model& model, Loss loss, const Optimizer& optimizer, optim::Gradients& sink,
                            const MemoryReportOptions& options) {
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); };
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor random_state = generator.get_state();
  c10::Device device = c10::kCPU;
  MemoryReport report;
  for (const at::Tensor& tensor : model.parameters()) report.weights += bytes(tensor);
  for (const at::Tensor& tensor : model.buffers()) report.weights += bytes(tensor);
  report.optimizer_state = optimizer.state_bytes();
  for (const auto& [name, parameter] : optimizer.named_parameters()) {
    device = parameter.device();
    if (!parameter.requires_grad() || options.optimizer_in_backward) continue;
    report.gradients += parameter.numel() * (parameter.scalar_type() == at::kDouble ? 8 : 4);
  }

  // From so many rows on that what is cut into chunks is cut. The first run fills caches and makes the sums.
  const std::int64_t rows = std::max<std::int64_t>(1, 2048 / options.sequence_length);
  detail::step_peaks(model, loss, sink, 1, options);
  if (device.is_cpu()) ::malloc_trim(0);
  const bool resident_known = device.is_cpu() && reset_resident_peak();
  const detail::StepPeaks one = detail::step_peaks(model, loss, sink, 1, options);
  const detail::StepPeaks few = rows == 1 ? one : detail::step_peaks(model, loss, sink, rows, options);
  const detail::StepPeaks more = detail::step_peaks(model, loss, sink, 2 * rows, options);
  const auto resident_peak = resident_known ? resident_peak_bytes() : std::nullopt;
  sink.clear();
  generator.set_state(random_state);
  TORCH_CHECK(one.freed == few.freed && few.freed == more.freed,
              "ilme::train::measure_memory: two backwards made gradients in another order");
  double gradients = options.accumulate ? static_cast<double>(report.gradients) : 0.0;  // that exist by then
  for (std::size_t i = 0; i < few.peaks.size(); ++i) {
    const auto low = static_cast<double>(few.peaks[i]), high = static_cast<double>(more.peaks[i]);
    const double per_row = std::max(0.0, (high - low) / static_cast<double>(rows));
    report.moments.push_back({gradients + low - per_row * static_cast<double>(rows), per_row, rows,
                              gradients + static_cast<double>(one.peaks[i])});
    if (!options.optimizer_in_backward) gradients += static_cast<double>(few.freed[i]);
  }

  std::int64_t known = report.weights;  // and there already
  for (const auto& [name, tensor] : optimizer.state()) known += bytes(tensor);
  std::int64_t process = ops::tensor_bytes(device);
  if (device.is_cpu()) {
    ::malloc_trim(0);  // what the batches have left behind is for the run to use
    if (const auto resident = resident_bytes()) process = static_cast<std::int64_t>(*resident);
  }
  report.program = std::max<std::int64_t>(0, process - known);
  if (resident_peak) {
    const std::int64_t held = options.accumulate ? report.gradients : 0;  // by `process` no more
    const std::int64_t peak = *std::max_element(more.peaks.begin(), more.peaks.end()) + held;
    report.overhead = std::max(0.0, static_cast<double>(static_cast<std::int64_t>(*resident_peak) - process - peak) /
                                        static_cast<double>(peak));
  }
  return report;
}

}  // namespace ilme::train
