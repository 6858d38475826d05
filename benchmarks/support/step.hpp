// What the benchmarks of a training step share: the shape of the model, its options, and random rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/random.hpp>
#include <ilme/data/collate.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::benchmark {

struct StepOptions {
  std::int64_t layers = 2, hidden = 2048, intermediate = 0, heads = 0, kv_heads = 0, vocab = 128256;
  std::int64_t batch = 1, sequence = 2048, documents = 1, steps = 4, warmup = 2;
  bool untied = false;
  std::string dtype = "bf16", checkpoint = "none";

  void add_to(CLI::App& app) {
    app.add_option("--layers", layers, "Blocks")->capture_default_str();
    app.add_option("--hidden", hidden, "Hidden size")->capture_default_str();
    app.add_option("--intermediate", intermediate, "Feed-forward size; 0: four times the hidden size");
    app.add_option("--heads", heads, "Attention heads; 0: one for each 64 of the hidden size");
    app.add_option("--kv-heads", kv_heads, "Heads of keys and values; 0: a quarter of --heads");
    app.add_option("--vocab", vocab, "Rows of the embedding")->capture_default_str();
    app.add_flag("--untied", untied, "A head of its own");
    app.add_option("--batch", batch, "Rows a step")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--sequence", sequence, "Tokens a row")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--documents", documents, "Documents a row, of equal length")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--dtype", dtype, "Of weights and activations")
        ->check(CLI::IsMember({"bf16", "fp32"}))
        ->capture_default_str();
    app.add_option("--checkpoint-activations", checkpoint, "What blocks compute again in the backward")
        ->check(CLI::IsMember({"none", "block", "selective"}))
        ->capture_default_str();
    app.add_option("--steps", steps, "Steps that count; the median is reported")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--warmup", warmup, "Steps before them")->capture_default_str();
  }
};

inline nn::LlamaConfig model_config(const StepOptions& options) {
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
inline data::Batch random_batch(const StepOptions& options, std::uint64_t step) {
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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace ilme::benchmark
