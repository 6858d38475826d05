/// ilme-model convert.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/core/progress.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/nn/llama.hpp>

#include "support/model_output.hpp"

namespace ilme::program {

struct ConvertOptions : ModelOutput {
  std::string model, output, dtype = "keep";
};

inline void convert(const ConvertOptions& options) {
  const hf::WeightFiles files(options.model);
  const auto dtype = options.dtype == "keep" ? io::scalar_type_of_safetensors(files.entry(files.names().front()).dtype)
                                             : hf::parse_dtype(options.dtype);
  const auto model = hf::load_model<nn::Llama<ops::Fused>>(options.model, dtype);
  hf::save_model(*model, options.output, dtype, options.model,
                 {.source = options.model, .max_shard_size = options.max_shard_bytes()});
  std::printf("%s: written as %s\n", options.output.c_str(), io::torch_dtype_name(dtype).c_str());
}

inline void add_convert_command(CLI::App& app) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = app.add_subcommand("convert", "Writes a model folder in another data type or shard size");
  command->add_option("--model", options->model, "Model folder")->type_name("DIR")->required();
  command->add_option("--output", options->output, "Model folder to write")->type_name("DIR")->required();
  command->add_option("--dtype", options->dtype, "fp32, bf16 or fp16; keep: that of the model")
      ->check(CLI::IsMember({"keep", "fp32", "bf16", "fp16"}));
  options->add_to(*command);
  command->callback([options] { convert(*options); });
}

}  // namespace ilme::program
