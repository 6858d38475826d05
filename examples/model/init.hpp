/// ilme-model init.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/core/progress.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/model_output.hpp"

namespace ilme::program {

struct InitOptions : ModelOutput {
  std::string tokenizer, output, dtype = "fp32";
  nn::LlamaConfig config;
  bool tied = true;
  std::uint64_t seed = 0;
};

inline void init(InitOptions options) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.tokenizer);
  nn::LlamaConfig& config = options.config;
  config.vocab_size = static_cast<std::int64_t>(tokenizer.vocabulary_size());
  config.tie_word_embeddings = options.tied;
  if (config.num_attention_heads > 0 && config.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      throw InputError("--hidden-size ", config.hidden_size, " is not a multiple of --heads ",
                       config.num_attention_heads, "; give --head-dim");
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  // 8/3 of the hidden size, to a multiple of 32: three matrices then have the size of a plain feed-forward's two.
  if (config.intermediate_size == 0) config.intermediate_size = (config.hidden_size * 8 / 3 + 31) / 32 * 32;
  if (const auto bos = tokenizer.bos_id()) config.bos_token_id = *bos;
  if (const auto pad = tokenizer.pad_id()) config.pad_token_id = *pad;
  if (const auto eos = tokenizer.eos_id()) config.eos_token_ids.push_back(*eos);
  for (const char* name : {"<|eot_id|>", "<|im_end|>"}) {
    const auto id = tokenizer.token_to_id(name);
    if (id && std::count(config.eos_token_ids.begin(), config.eos_token_ids.end(), *id) == 0) {
      config.eos_token_ids.push_back(*id);
    }
  }
  hf::check_config(config, "ilme-model init");
  const auto dtype = hf::parse_dtype(options.dtype);
  nn::Llama<ops::Fused> model(config, dtype);
  model.initialize(options.seed);
  std::int64_t parameters = 0;
  for (const auto& parameter : model.parameters()) parameters += parameter.numel();
  hf::save_model(model, options.output, dtype, options.tokenizer, {.max_shard_size = options.max_shard_bytes()});
  std::printf("%s: %s parameters, vocabulary %lld\n", options.output.c_str(),
              format_count(static_cast<double>(parameters)).c_str(), static_cast<long long>(config.vocab_size));
}

inline void add_init_command(CLI::App& app) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* make = app.add_subcommand("init", "A new Llama with random weights for a tokenizer");
  make->add_option("--tokenizer", options->tokenizer, "Tokenizer folder; decides the vocabulary size")
      ->type_name("DIR")
      ->required();
  make->add_option("--output", options->output, "Model folder to write")->type_name("DIR")->required();
  make->add_option("--hidden-size", options->config.hidden_size, "Width of the hidden states")->required();
  make->add_option("--layers", options->config.num_hidden_layers, "Number of blocks")->required();
  make->add_option("--heads", options->config.num_attention_heads, "Attention heads")->required();
  make->add_option("--kv-heads", options->config.num_key_value_heads, "Heads of keys and values; 0: as --heads");
  make->add_option("--head-dim", options->config.head_dim, "Size of a head; 0: hidden size / heads");
  make->add_option("--intermediate-size", options->config.intermediate_size,
                   "Width of the feed-forward; 0: 8/3 of the hidden size, to a multiple of 32");
  make->add_option("--max-position-embeddings", options->config.max_position_embeddings,
                   "Longest context that the model is meant for, in tokens");
  make->add_option("--rope-theta", options->config.rope_theta, "Base of the rotary frequencies");
  make->add_option("--tied", options->tied, "Whether the head is the embedding");
  make->add_option("--dtype", options->dtype, "fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}));
  make->add_option("--seed", options->seed, "Seed of the weights");
  options->add_to(*make);
  make->callback([options] { init(*options); });
}

}  // namespace ilme::program
