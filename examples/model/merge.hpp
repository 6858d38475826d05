/// ilme-model merge.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>

#include "support/model_output.hpp"

namespace ilme::program {

struct MergeOptions : ModelOutput {
  std::string model, adapter, output;
};

inline void merge(const MergeOptions& options) {
  const hf::WeightFiles files(options.model);
  const auto dtype = io::scalar_type_of_safetensors(files.entry(files.names().front()).dtype);
  auto model = lora::load_with_adapter<ops::Fused>(options.model, options.adapter, dtype);
  const std::int64_t merged = lora::merge_adapters(*model);
  hf::save_model(*model, options.output, dtype, options.model,
                 {.source = options.model, .max_shard_size = options.max_shard_bytes()});
  std::printf("%s: %lld adapters merged\n", options.output.c_str(), static_cast<long long>(merged));
}

inline void add_merge_command(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  CLI::App* command = app.add_subcommand("merge", "Folds a LoRA adapter into its model");
  command->add_option("--model", options->model, "Model folder")->type_name("DIR")->required();
  command->add_option("--adapter", options->adapter, "Adapter folder (PEFT layout)")->type_name("DIR")->required();
  command->add_option("--output", options->output, "Model folder to write")->type_name("DIR")->required();
  options->add_to(*command);
  command->callback([options] { merge(*options); });
}

}  // namespace ilme::program
