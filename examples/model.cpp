// ilme-model: make, merge and describe model folders.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <ilme/core/allocator.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"

namespace {

using namespace ilme;

struct InitOptions {
  std::string tokenizer, output, dtype = "fp32";
  nn::LlamaConfig config;
  bool tied = true;
  std::uint64_t seed = 0;
};

void init(InitOptions options) {
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
  nn::Llama<ops::Fused> model(config);
  model.initialize(options.seed);
  std::int64_t parameters = 0;
  for (const auto& parameter : model.parameters()) parameters += parameter.numel();
  hf::save_model(model, options.output, dtype, options.tokenizer);
  std::printf("%s: %s parameters, vocabulary %lld\n", options.output.c_str(),
              format_count(static_cast<double>(parameters)).c_str(), static_cast<long long>(config.vocab_size));
}

void merge(const std::string& folder, const std::string& adapter, const std::string& output) {
  const hf::WeightFiles files(folder);
  const auto dtype = io::scalar_type_of_safetensors(files.entry(files.names().front()).dtype);
  auto model = lora::load_with_adapter<ops::Fused>(folder, adapter, dtype);
  const std::int64_t merged = lora::merge_adapters(*model);
  hf::save_model(*model, output, dtype, folder);
  std::printf("%s: %lld adapters merged\n", output.c_str(), static_cast<long long>(merged));
}

void inspect(const std::string& folder) {
  const nn::LlamaConfig config = hf::read_config(folder);
  const hf::WeightFiles files(folder);
  std::int64_t parameters = 0, largest = 0;
  for (const std::string& name : files.names()) {
    std::int64_t size = 1;
    for (const std::int64_t extent : files.entry(name).shape) size *= extent;
    parameters += size;
    largest = std::max<std::int64_t>(largest, static_cast<std::int64_t>(name.size()));
  }
  std::printf(
      "layers %lld, hidden %lld, heads %lld (%lld for keys and values), feed-forward %lld, vocabulary %lld, %s\n",
      static_cast<long long>(config.num_hidden_layers), static_cast<long long>(config.hidden_size),
      static_cast<long long>(config.num_attention_heads), static_cast<long long>(config.num_key_value_heads),
      static_cast<long long>(config.intermediate_size), static_cast<long long>(config.vocab_size),
      config.tie_word_embeddings ? "tied embeddings" : "untied embeddings");
  std::printf("%s parameters in %zu tensors\n", format_count(static_cast<double>(parameters)).c_str(),
              files.names().size());
  for (const std::string& name : files.names()) {
    const auto& entry = files.entry(name);
    std::printf("  %-*s %-5s %s\n", static_cast<int>(largest), name.c_str(), entry.dtype.c_str(),
                Json(entry.shape).dump().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(
      argc, argv, "ilme-model", "Makes, merges and describes model folders in Hugging Face's layout.",
      [](CLI::App& app) -> std::function<void()> {
        app.require_subcommand(1);
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
        make->callback([options] { init(*options); });

        struct Paths {
          std::string model, adapter, output;
        };
        auto paths = std::make_shared<Paths>();
        CLI::App* fold = app.add_subcommand("merge", "Folds a LoRA adapter into its model");
        fold->add_option("--model", paths->model, "Model folder")->type_name("DIR")->required();
        fold->add_option("--adapter", paths->adapter, "Adapter folder (PEFT layout)")->type_name("DIR")->required();
        fold->add_option("--output", paths->output, "Model folder to write")->type_name("DIR")->required();
        fold->callback([paths] { merge(paths->model, paths->adapter, paths->output); });

        CLI::App* show = app.add_subcommand("inspect", "Describes a model folder");
        show->add_option("folder", paths->model, "Model folder")->type_name("DIR")->required();
        show->callback([paths] { inspect(paths->model); });
        return {};
      });
}
