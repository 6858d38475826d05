/// ilme-model inspect.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/hf/config.hpp>
#include <ilme/hf/weights.hpp>

namespace ilme::program {

inline void inspect(const std::string& folder) {
  const nn::LlamaConfig config = hf::read_config(folder);
  const hf::WeightFiles files(folder);
  std::int64_t parameters = 0, largest = 0;
  for (const std::string& name : files.names()) {
    std::int64_t size = 1;
    for (const std::int64_t extent : files.entry(name).shape) size *= extent;
    parameters += size;
    largest = std::max<std::int64_t>(largest, static_cast<std::int64_t>(name.size()));
  }
  std::printf("%s, ", hf::detail::names_of(config.architecture).class_name);
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

inline void add_inspect_command(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("inspect", "Describes a model folder");
  command->add_option("folder", *folder, "Model folder")->type_name("DIR")->required();
  command->callback([folder] { inspect(*folder); });
}

}  // namespace ilme::program
