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
#include <ilme/core/random.hpp>
#include <ilme/core/resident_memory.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/loss/linear_cross_entropy.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/optim/adamw.hpp>
#include <ilme/optim/clip.hpp>
#include <ilme/optim/gradient_sink.hpp>

namespace {

using namespace ilme;
using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t layers = 2, hidden = 2048, intermediate = 0, heads = 0, kv_heads = 0, vocab = 128256;
  std::int64_t batch = 1, sequence = 2048, documents = 1, steps = 4, warmup = 2;
  bool untied = false;
  std::string dtype = "bf16", variant = "fused", state = "masters", checkpoint = "none", json;
};

nn::LlamaConfig model_config(const Options& options) {
  nn::LlamaConfig config;
  config.vocab_size = options.vocab;
  config.hidden_size = options.hidden;
  config.intermediate_size = options.intermediate > 0 ? options.intermediate : 4 * options.hidden;
  config.num_hidden_layers = options.layers;
  config.num_attention_heads = options.heads > 0 ? options.heads : std::max<std::int64_t>(1, options.hidden / 64);
  config.num_key_value_heads =
      options.kv_heads > 0 ? options.kv_heads : std::max<std::int64_t>(1, config.num_attention_heads / 4);
  config.head_dim = options.hidden / config.num_attention_heads;
  config.rope_theta = 500000.0;
  config.tie_word_embeddings = !options.untied;
  config.max_position_embeddings = options.sequence;
  return config;
}

/// Rows of random tokens, each cut into equal documents; every label counts.
data::Batch random_batch(const Options& options, std::uint64_t step) {
  data::PackedBatch packed;
  packed.rows = options.batch;
  packed.sequence_length = options.sequence;
  const std::int64_t length = (options.sequence + options.documents - 1) / options.documents;
  packed.sequence_offsets.push_back(0);
  for (std::int64_t i = 0; i < options.batch * options.sequence; ++i) {
    const auto draw = [&](std::uint64_t stream) {
      return static_cast<std::int64_t>(random_bits(stream, step, static_cast<std::uint64_t>(i)) %
                                       static_cast<std::uint64_t>(options.vocab));
    };
    const std::int64_t position = i % options.sequence % length;
    if (position == 0 && i > 0) packed.sequence_offsets.push_back(i);
    packed.input_ids.push_back(draw(1));
    packed.labels.push_back(draw(2));
    packed.position_ids.push_back(position);
  }
  packed.sequence_offsets.push_back(options.batch * options.sequence);
  packed.token_count = options.batch * options.sequence;
  return data::collate(packed);
}

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Model, class Loss>
void run(const Options& options, const Loss& loss) {
  const nn::LlamaConfig config = model_config(options);
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
    const data::Batch batch = random_batch(options, static_cast<std::uint64_t>(step));
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
  const double rate = matmul_rate(config, tokens, type), step_seconds = median(seconds);
  Json times = Json::object();
  for (const auto& [name, values] : phases) times[name] = median(values);
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
  app.add_option("--layers", options.layers, "Blocks")->capture_default_str();
  app.add_option("--hidden", options.hidden, "Hidden size")->capture_default_str();
  app.add_option("--intermediate", options.intermediate, "Feed-forward size; 0: four times the hidden size");
  app.add_option("--heads", options.heads, "Attention heads; 0: one for each 64 of the hidden size");
  app.add_option("--kv-heads", options.kv_heads, "Heads of keys and values; 0: a quarter of --heads");
  app.add_option("--vocab", options.vocab, "Rows of the embedding")->capture_default_str();
  app.add_flag("--untied", options.untied, "A head of its own");
  app.add_option("--batch", options.batch, "Rows a step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sequence", options.sequence, "Tokens a row")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--documents", options.documents, "Documents a row, of equal length")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "Of weights and activations")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  app.add_option("--state", options.state,
                 "Optimizer state for bf16: fp32 masters and moments, or bf16 (fp32 second moment)")
      ->check(CLI::IsMember({"masters", "bf16"}))
      ->capture_default_str();
  app.add_option("--variant", options.variant, "fused, or reference: plain ATen operations and full logits")
      ->check(CLI::IsMember({"fused", "reference"}))
      ->capture_default_str();
  app.add_option("--checkpoint-activations", options.checkpoint, "What blocks compute again in the backward")
      ->check(CLI::IsMember({"none", "block", "selective"}))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps that count; the median is reported")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Steps before them")->capture_default_str();
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
