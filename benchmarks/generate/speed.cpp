// Tokens per second of generation, for benchmarks/peers/compare_generation.py and alone: greedy, from random prompts or
// given ones, with the time of the prompts and that of the tokens after them apart. A folder that holds only
// config.json gets random weights.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/allocator.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/random.hpp>
#include <ilme/generate/generate.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/nn/llama.hpp>

namespace {

using namespace ilme;
using Model = nn::Llama<ops::Fused>;

struct Options {
  std::string model, dtype = "bf16", prompts, json;
  std::int64_t prompt_tokens = 32, tokens = 128, batch = 1, repeat = 3;
};

std::shared_ptr<Model> load(const Options& options) {
  const at::ScalarType type = hf::parse_dtype(options.dtype);
  if (std::filesystem::exists(options.model + "/model.safetensors") ||
      std::filesystem::exists(options.model + "/model.safetensors.index.json")) {
    return hf::load_model<Model>(options.model, type);
  }
  auto model = std::make_shared<Model>(hf::read_config(options.model), at::TensorOptions(type));
  model->initialize(/*seed=*/0);
  return model;
}

std::vector<std::vector<std::int64_t>> prompts(const Options& options, std::int64_t vocabulary) {
  if (!options.prompts.empty()) return read_json(options.prompts).get<std::vector<std::vector<std::int64_t>>>();
  std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(options.batch));
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::int64_t t = 0; t < options.prompt_tokens; ++t) {
      all[i].push_back(static_cast<std::int64_t>(random_bits(7, i, t) % static_cast<std::uint64_t>(vocabulary)));
    }
  }
  return all;
}

/// Bytes of the weights that a step reads: all, but of an embedding that is not the head too only a row.
std::int64_t weight_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const at::Tensor& weight : model.parameters()) bytes += static_cast<std::int64_t>(weight.nbytes());
  return model.lm_head ? bytes - static_cast<std::int64_t>(model.embed_tokens->weight.nbytes()) : bytes;
}

void run(const Options& options) {
  const auto model = load(options);
  model->eval();
  const auto all = prompts(options, model->config().vocab_size);
  Json runs = Json::array(), ids = Json::array();
  for (std::int64_t i = 0; i < options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    generate::Generator<Model> generator(*model);
    for (const auto& prompt : all) generator.add(prompt, {.max_tokens = options.tokens});
    const double prompt_seconds = seconds();
    while (generator.step()) {
    }
    const double token_seconds = seconds() - prompt_seconds;
    const double steps = static_cast<double>(options.tokens - 1);
    runs.push_back(
        {{"prompt_seconds", prompt_seconds},
         {"milliseconds_per_step", token_seconds / steps * 1e3},
         {"tokens_per_second", steps * static_cast<double>(all.size()) / token_seconds},
         {"weight_gigabytes_per_second", static_cast<double>(weight_bytes(*model)) * steps / token_seconds * 1e-9}});
    std::printf("prompts %.3f s, %.2f ms a step, %.1f tokens/s, %.1f GB/s of weights\n", prompt_seconds,
                token_seconds / steps * 1e3, steps * static_cast<double>(all.size()) / token_seconds,
                static_cast<double>(weight_bytes(*model)) * steps / token_seconds * 1e-9);
    std::fflush(stdout);
    ids = Json::array();
    for (std::size_t p = 0; p < all.size(); ++p) ids.push_back(generator.result(p).ids);
  }
  if (!options.json.empty()) write_json(options.json, {{"runs", runs}, {"ids", ids}});
}

}  // namespace

int main(int argc, char** argv) {
  reuse_large_allocations();
  Options options;
  CLI::App app("Measures generation.");
  app.add_option("model", options.model, "Model folder, or one with config.json alone")->required();
  app.add_option("--dtype", options.dtype, "fp32, bf16 or fp16");
  app.add_option("--prompt-tokens", options.prompt_tokens, "Length of the random prompts");
  app.add_option("--batch", options.batch, "How many random prompts");
  app.add_option("--prompts", options.prompts, "JSON file with a list of lists of ids, instead of random prompts");
  app.add_option("--tokens", options.tokens, "New tokens for each prompt")->check(CLI::Range(2, 1 << 20));
  app.add_option("--repeat", options.repeat, "How many times");
  app.add_option("--json", options.json, "Write the figures and the new ids here");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "speed: error: " << error.what() << "\n";
    return 1;
  }
}
