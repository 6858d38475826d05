// One training step of a Llama model with random weights on random tokens: tokens per second, peak memory, the share of
// the matrix-multiply rate that the same process measures, and the time by phase. For
// benchmarks/peers/compare_train_step.py, and alone.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
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
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/gradient_sink.hpp>

#include "support/step.hpp"

namespace {

using namespace ilme;
using Clock = std::chrono::steady_clock;

struct Options : benchmark::StepOptions {
  std::string variant = "fused", state = "masters", json;
};

/// The products of one token in one forward, as [in, out] of their weights.
std::vector<std::pair<std::int64_t, std::int64_t>> products(const nn::LlamaConfig& config) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  const std::int64_t q = config.num_attention_heads * config.head_dim,
                     kv = config.num_key_value_heads * config.head_dim;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    for (const std::int64_t out : {q, kv, kv}) all.emplace_back(config.hidden_size, out);
    all.emplace_back(q, config.hidden_size);
    for (int k = 0; k < 2; ++k) all.emplace_back(config.hidden_size, config.intermediate_size);
    all.emplace_back(config.intermediate_size, config.hidden_size);
  }
  all.emplace_back(config.hidden_size, config.vocab_size);
  return all;
}

/// What a step computes in matrix products, forward and backward; attention is not counted.
double step_flops(const nn::LlamaConfig& config, std::int64_t tokens) {
  double flops = 0;
  for (const auto& [in, out] : products(config)) flops += 6.0 * static_cast<double>(in * out * tokens);
  return flops;
}

/// Floating-point operations per second of at::mm on the model's own shapes, x @ weight^T, the best of three; the head
/// in slices of at most 16,384 rows.
double matmul_rate(const nn::LlamaConfig& config, std::int64_t tokens, at::ScalarType type) {
  const c10::NoGradGuard no_gradient;
  constexpr std::int64_t kMostRows = 16384;
  std::map<std::pair<std::int64_t, std::int64_t>, double> counts;
  for (auto [in, out] : products(config)) {
    counts[{in, std::min(out, kMostRows)}] += static_cast<double>(out) / static_cast<double>(std::min(out, kMostRows));
  }
  double flops = 0, seconds = 0;
  for (const auto& [shape, count] : counts) {
    const at::Tensor x = at::randn({tokens, shape.first}).to(type),
                     weight = at::randn({shape.second, shape.first}).to(type);
    at::Tensor y = at::empty({tokens, shape.second}, x.options());
    double best = 1e30;
    for (int i = 0; i < 3; ++i) {
      const auto start = Clock::now();
      at::mm_out(y, x, weight.t());
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    flops += count * 2.0 * static_cast<double>(tokens * shape.first * shape.second);
    seconds += count * best;
  }
  return flops / seconds;
}

template <class Model, class Loss>
void run(const Options& options, const Loss& loss) {
  const nn::LlamaConfig config = benchmark::model_config(options);
  const at::ScalarType type = options.dtype == "fp32" ? at::kFloat : at::kBFloat16;
  const std::int64_t tokens = options.batch * options.sequence;
  const auto libraries = static_cast<std::int64_t>(resident_bytes().value_or(0));
  Model model(config, at::TensorOptions(type));
  model.initialize(/*seed=*/1);
  model.set_activation_checkpointing(nn::parse_activation_checkpointing(options.checkpoint));
  const auto parameters = optim::trainable_parameters(model);
  optim::AdamW optimizer(parameters, {.state = optim::parse_adamw_state(options.state)});
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : parameters) tensors.push_back(parameter);
  optim::GradientSink sink(tensors);

  std::map<std::string, std::vector<double>> phases;
  std::vector<double> seconds;
  double last_loss = 0;
  for (std::int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const data::Batch batch = benchmark::random_batch(options, static_cast<std::uint64_t>(step));
    const auto start = Clock::now();
    auto mark = start;
    const auto phase = [&](const char* name) {
      const auto now = Clock::now();
      if (step >= options.warmup) phases[name].push_back(std::chrono::duration<double>(now - mark).count());
      mark = now;
    };
    const at::Tensor hidden = model.hidden(batch);
    phase("forward");
    ops::LossSum sum = loss(hidden, model.lm_head_weight(), batch.labels);
    phase("loss");
    sum.sum.backward();
    phase("backward");
    last_loss = sum.sum.template item<double>() / static_cast<double>(tokens);
    const double norm = optim::global_norm(sink.gradients()).item<double>() / static_cast<double>(tokens);
    phase("gradient norm");
    optimizer.step(sink.gradients(), 1e-5,
                   at::scalar_tensor(static_cast<double>(tokens) * std::max(1.0, norm), at::kFloat));
    sink.clear();
    phase("optimizer");
    if (step >= options.warmup) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  // Before the matrix products below.
  const auto peak = static_cast<std::int64_t>(resident_peak_bytes().value_or(0));

  std::int64_t weights = 0, gradients = 0, state = 0;
  for (const auto& [name, parameter] : parameters) {
    weights += static_cast<std::int64_t>(parameter.nbytes());
    gradients += parameter.numel() * 4;
  }
  for (const auto& [name, tensor] : optimizer.state()) state += static_cast<std::int64_t>(tensor.nbytes());
  const double rate = matmul_rate(config, tokens, type), step_seconds = benchmark::median(seconds);
  Json times = Json::object();
  for (const auto& [name, values] : phases) times[name] = benchmark::median(values);
  const Json result = {{"variant", options.variant},
                       {"tokens_per_second", static_cast<double>(tokens) / step_seconds},
                       {"step_seconds", step_seconds},
                       {"matmul_share", step_flops(config, tokens) / step_seconds / rate},
                       {"matmul_flops_per_second", rate},
                       {"peak_memory_bytes", peak},
                       {"library_memory_bytes", libraries},
                       {"model_state_bytes", weights + gradients + state},
                       {"weight_bytes", weights},
                       {"gradient_bytes", gradients},
                       {"optimizer_bytes", state},
                       {"above_model_state_bytes", peak - libraries - weights - gradients - state},
                       {"loss", last_loss},
                       {"checkpoint_activations", options.checkpoint},
                       {"state", options.state},
                       {"threads", at::get_num_threads()},
                       {"phases", times}};
  std::printf("%s %s, %lld layers, hidden %lld, vocabulary %lld, %lld x %lld tokens, %d threads\n",
              options.variant.c_str(), options.dtype.c_str(), static_cast<long long>(options.layers),
              static_cast<long long>(options.hidden), static_cast<long long>(options.vocab),
              static_cast<long long>(options.batch), static_cast<long long>(options.sequence), at::get_num_threads());
  std::printf("%.1f tokens/s, %.3f s a step, %.1f %% of the matrix-multiply rate of %.0f GFLOP/s\n",
              static_cast<double>(tokens) / step_seconds, step_seconds, 100 * result["matmul_share"].get<double>(),
              rate * 1e-9);
  std::printf("peak %s: weights %s, gradients %s, optimizer %s, libraries %s, above them %s\n",
              format_bytes(static_cast<double>(peak)).c_str(), format_bytes(static_cast<double>(weights)).c_str(),
              format_bytes(static_cast<double>(gradients)).c_str(), format_bytes(static_cast<double>(state)).c_str(),
              format_bytes(static_cast<double>(libraries)).c_str(),
              format_bytes(result["above_model_state_bytes"].get<double>()).c_str());
  for (const auto& [name, value] : times.items()) {
    std::printf("  %-14s %7.3f s  %5.1f %%\n", name.c_str(), value.template get<double>(),
                100 * value.template get<double>() / step_seconds);
  }
  if (!options.json.empty()) write_json(options.json, result);
}

}  // namespace

int main(int argc, char** argv) {
  reuse_large_allocations();
  Options options;
  CLI::App app("Measures training steps of a Llama model: random weights, random tokens, AdamW, clipping.");
  options.add_to(app);
  app.add_option("--state", options.state,
                 "Optimizer state for bf16: fp32 masters and moments, or bf16 (fp32 second moment)")
      ->check(CLI::IsMember({"masters", "bf16"}))
      ->capture_default_str();
  app.add_option("--variant", options.variant, "fused, or reference: plain ATen operations and full logits")
      ->check(CLI::IsMember({"fused", "reference"}))
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    options.variant == "fused" ? run<nn::Llama<ops::Fused>>(options, loss::LinearCrossEntropy{})
                               : run<nn::Llama<ops::Reference>>(options, loss::CrossEntropy{});
  } catch (const std::exception& error) {
    std::cerr << "train_step: error: " << error.what() << '\n';
    return 1;
  }
}
