#include "support/tiny_llama.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/train/memory_report.hpp>
#include <ilme/train/trainer.hpp>

using namespace ilme;

namespace {

/// Full batches, as the report assumes them.
struct FullBatches {
  std::int64_t rows;
  train::MemoryReportOptions options;
  std::optional<data::PackedBatch> next() { return train::detail::full_batch(rows, options); }
  Json state() const { return Json::object(); }
  void restore(const Json&) {}
  std::int64_t batches_per_epoch() const { return 1; }
};

nn::LlamaConfig config() {
  nn::LlamaConfig config = test::tiny_config();
  config.vocab_size = 2000;
  config.hidden_size = 128;
  config.intermediate_size = 256;
  config.num_hidden_layers = 4;
  config.head_dim = 32;
  return config;
}

}  // namespace

TEST_CASE("the memory report foresees the peak of a real step at other batch sizes") {
  ops::count_tensor_memory();
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto [accumulate, in_backward] = GENERATE(std::pair{1, false}, std::pair{2, false}, std::pair{1, true});
  CAPTURE(dtype, accumulate, in_backward);
  const std::int64_t before = ops::tensor_bytes();
  nn::Llama<ops::Fused> model(config(), dtype);
  model.initialize(1);
  optim::AdamW optimizer(optim::trainable_parameters(model));
  const train::MemoryReportOptions options{.sequence_length = 64,
                                           .vocabulary_size = 2000,
                                           .accumulate = accumulate > 1,
                                           .optimizer_in_backward = in_backward};
  const at::Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model.parameters()) weights.push_back(parameter.clone());
  const train::MemoryReport report = [&] {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, parameter] : optimizer.named_parameters()) tensors.push_back(parameter);
    optim::GradientSink sink(tensors);
    return train::measure_memory(model, loss::LinearCrossEntropy{}, optimizer, sink, options);
  }();
  CHECK(at::equal(at::detail::getDefaultCPUGenerator().get_state(), random_state));
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(at::equal(model.parameters()[i], weights[i]));
  CHECK(optimizer.state().empty());
  weights.clear();
  CHECK(std::abs(ops::tensor_bytes() - before - report.weights) < 100'000);

  for (const std::int64_t rows : {1, 8, 100}) {
    CAPTURE(rows);
    FullBatches source{rows, options};
    optim::AdamW fresh(optim::trainable_parameters(model));
    train::Trainer trainer(model, loss::LinearCrossEntropy{}, fresh, source,
                           {.total_steps = 3,
                            .accumulate = accumulate,
                            .max_grad_norm = 0,
                            .learning_rate = [](std::int64_t) { return 1e-4; },
                            .optimizer_in_backward = in_backward});
    trainer.train_step();
    CHECK(ops::tensor_bytes() - before ==
          Catch::Approx(static_cast<double>(report.weights + report.optimizer_state)).margin(200'000));
    const train::StepReport step = trainer.train_step();
    const auto expected = static_cast<double>(report.total(rows) - report.program - report.heap_overhead(rows));
    const std::int64_t peak = std::max(step.backward_peak_bytes, step.update_peak_bytes);
    CHECK(static_cast<double>(peak - before) == Catch::Approx(expected).epsilon(0.1));
  }
}

TEST_CASE("the largest batch is the last one within the limit, and the table names every part") {
  train::MemoryReport report;
  report.weights = 100;
  report.gradients = 50;
  report.optimizer_state = 300;
  report.program = 10;
  report.moments = {{.fixed = 0, .per_row = 7}, {.fixed = 40, .per_row = 3}};
  CHECK(report.step_bytes(1) == 43);
  CHECK(report.step_bytes(20) == 140);
  CHECK(report.activations(20) == 90);
  CHECK(report.total(20) == 550);
  CHECK(report.largest_batch(550) == 20);
  CHECK(report.largest_batch(549) == 19);
  CHECK(report.largest_batch(452) == 0);
  const std::string table = report.table(20, 550);
  for (const char* part : {"weights", "gradients", "optimizer state", "activations", "largest batch"}) {
    CHECK(table.find(part) != std::string::npos);
  }
  report.overhead = 0.5;
  CHECK(report.total(20) == 620);
  CHECK(report.json(20, 620).at("largest_batch_size") == 20);
}
