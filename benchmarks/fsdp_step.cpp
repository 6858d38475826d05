// One training step of a Llama model that is sharded over the ranks of a launcher (torchrun --no-python, mpirun): step
// time, memory of a rank by kind, and how much of the communication hides behind the computation. Random weights on
// random tokens, other ones on each rank. For benchmarks/peers/compare_fsdp_step.py, and alone.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <ilme/core/allocator.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/dist/connect.hpp>
#include <ilme/dist/fully_sharded.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/memory.hpp>
#include <ilme/optim/adamw.hpp>

#include "support/step.hpp"

namespace {

using namespace ilme;
using Clock = std::chrono::steady_clock;

struct Options : benchmark::StepOptions {
  std::string shard = "full", json;
  bool no_reshard = false;
};

struct Timing {
  double step_seconds = 0, wait_seconds = 0, loss = 0;
  std::int64_t peak_bytes = 0;  // of tensors, in a step
};

/// Small values for every slice; norms 1.
void initialize(dist::Sharding& sharding) {
  const c10::NoGradGuard no_gradient;
  at::Generator generator = at::detail::createCPUGenerator(1);
  for (const auto& slice : sharding.slices()) {
    slice.shape.size() == 1 ? slice.tensor.fill_(1.0) : slice.tensor.normal_(0.0, 0.02, generator);
  }
}

/// Steps of a fresh model; the median of those that count.
Timing measure(const Options& options, const dist::World& world, bool prefetch, Json* memory) {
  using Model = dist::FullySharded<nn::Llama<ops::Fused, nn::Linear, dist::FullySharded>>;
  const at::ScalarType type = options.dtype == "fp32" ? at::kFloat : at::kBFloat16;
  Model model(benchmark::model_config(options), at::TensorOptions(type).device(at::kMeta));
  dist::fully_shard(model, dist::make_mesh(world, dist::parse_shard_kind(options.shard)),
                    {.reshard_after_forward = !options.no_reshard, .prefetch = prefetch});
  dist::Sharding& sharding = *model.sharding();
  initialize(sharding);
  model.set_activation_checkpointing(nn::parse_activation_checkpointing(options.checkpoint));
  optim::AdamW optimizer(sharding.trainable_slices());
  const loss::LinearCrossEntropy loss;
  const double tokens = static_cast<double>(options.batch * options.sequence * world.size);

  std::vector<double> seconds, waits;
  Timing timing;
  for (std::int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const data::Batch batch =
        benchmark::random_batch(options, static_cast<std::uint64_t>(step * world.size + world.rank));
    world.all.barrier();
    sharding.take_wait_seconds();
    const ops::MemoryPhase phase;
    const auto start = Clock::now();
    const ops::LossSum sum = loss(model.hidden(batch), model.lm_head_weight(), batch.labels);
    sum.sum.backward();
    const double norm = sharding.norm().item<double>() / tokens;
    optimizer.step(sharding.gradients(), 1e-5, at::scalar_tensor(tokens * std::max(1.0, norm), at::kFloat));
    sharding.clear();
    if (step < options.warmup) continue;
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    waits.push_back(sharding.take_wait_seconds());
    timing.loss = sum.sum.item<double>() / static_cast<double>(options.batch * options.sequence);
    timing.peak_bytes = std::max(timing.peak_bytes, phase.peak_bytes());
  }
  timing.step_seconds = benchmark::median(seconds);
  timing.wait_seconds = benchmark::median(waits);
  if (memory != nullptr) {
    std::int64_t gradients = 0, state = 0;
    for (const auto& slice : sharding.trainable_slices()) gradients += slice.tensor.numel() * 4;
    for (const auto& [name, tensor] : optimizer.state()) state += static_cast<std::int64_t>(tensor.nbytes());
    *memory = {{"parameter_bytes", sharding.memory().shards},
               {"gradient_bytes", gradients},
               {"optimizer_bytes", state},
               {"unsharded_parts_bytes", sharding.memory().largest_parts},
               {"peak_tensor_bytes", timing.peak_bytes}};
  }
  return timing;
}

void run(const Options& options) {
  const dist::World world = dist::connect();
  const auto libraries = static_cast<std::int64_t>(resident_bytes().value_or(0));
  Json memory;
  const Timing timing = measure(options, world, /*prefetch=*/true, &memory);
  const auto peak = static_cast<std::int64_t>(resident_peak_bytes().value_or(0));
  // Without prefetch every gather is waited for from its beginning.
  const Timing exposed = measure(options, world, /*prefetch=*/false, nullptr);
  if (world.rank > 0) return;
  const double tokens = static_cast<double>(options.batch * options.sequence * world.size);
  const double hidden = exposed.wait_seconds > 0 ? 1 - timing.wait_seconds / exposed.wait_seconds : 0;
  const Json result = {{"ranks", world.size},
                       {"shard", options.shard},
                       {"step_seconds", timing.step_seconds},
                       {"tokens_per_second", tokens / timing.step_seconds},
                       {"wait_seconds", timing.wait_seconds},
                       {"step_seconds_without_prefetch", exposed.step_seconds},
                       {"wait_seconds_without_prefetch", exposed.wait_seconds},
                       {"communication_hidden", hidden},
                       {"memory", memory},
                       {"peak_memory_bytes", peak},
                       {"library_memory_bytes", libraries},
                       {"loss", timing.loss},
                       {"threads", at::get_num_threads()}};
  const auto bytes = [&](const char* name) { return format_bytes(memory.at(name).get<double>()); };
  std::printf(
      "%d ranks, --shard %s, %s, %lld layers, hidden %lld, vocabulary %lld, %lld x %lld tokens a rank, %d threads\n",
      world.size, options.shard.c_str(), options.dtype.c_str(), static_cast<long long>(options.layers),
      static_cast<long long>(options.hidden), static_cast<long long>(options.vocab),
      static_cast<long long>(options.batch), static_cast<long long>(options.sequence), at::get_num_threads());
  std::printf("%.3f s a step, %.1f tokens/s; waiting for others %.3f s, without prefetch %.3f s of %.3f s\n",
              timing.step_seconds, tokens / timing.step_seconds, timing.wait_seconds, exposed.wait_seconds,
              exposed.step_seconds);
  std::printf(
      "a rank's parameters %s, gradients %s, optimizer %s, unsharded parts %s, tensors at most %s, process %s\n",
      bytes("parameter_bytes").c_str(), bytes("gradient_bytes").c_str(), bytes("optimizer_bytes").c_str(),
      bytes("unsharded_parts_bytes").c_str(), bytes("peak_tensor_bytes").c_str(),
      format_bytes(static_cast<double>(peak)).c_str());
  if (!options.json.empty()) write_json(options.json, result);
}

}  // namespace

int main(int argc, char** argv) {
  reuse_large_allocations();
  ops::count_tensor_memory();
  Options options;
  CLI::App app("Measures training steps of a sharded Llama model over the ranks of a launcher.");
  options.add_to(app);
  app.add_option("--shard", options.shard, "full, hybrid or none")
      ->check(CLI::IsMember({"full", "hybrid", "none"}))
      ->capture_default_str();
  app.add_flag("--no-reshard", options.no_reshard, "Keep blocks unsharded from forward to backward");
  app.add_option("--json", options.json, "Write the first rank's figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "fsdp_step: error: " << error.what() << '\n';
    return 1;
  }
}
