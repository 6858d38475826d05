/// A model in Hugging Face's folder layout, loaded and saved as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <ATen/core/Tensor.h>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/hf/config.hpp>
#include <ilme/hf/weights.hpp>

namespace ilme::hf {

/// "fp32", "bf16" or "fp16" as a scalar type; InputError for anything else.
inline at::ScalarType parse_dtype(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  throw InputError("dtype \"", name, "\": expected fp32, bf16 or fp16");
}

/// Builds `Model(config, dtype)` from a folder's config.json and fills it from its weight files.
template <class Model>
std::shared_ptr<Model> load_model(const std::filesystem::path& folder, at::ScalarType dtype) {
  const WeightFiles files(folder);
  auto model = std::make_shared<Model>(read_config(folder), at::TensorOptions(dtype));
  load_parameters(*model, files);
  return model;
}

/// How a model folder is written.
struct SaveOptions {
  /// The folder that the model comes from: what its config.json and generation_config.json say beyond the model's
  /// configuration is kept. Empty: none.
  std::filesystem::path source = {};
  std::uint64_t max_shard_size = kMaxShardSize;  ///< bytes of weights in a file
};

namespace detail {

inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "chat_template.jinja",
                                                  "added_tokens.json",
                                                  "tokenizer.model",
                                                  "vocab.json",
                                                  "merges.txt"};

/// Writes what stands beside the weights: configuration and tokenizer.
inline void write_side_files(const nn::LlamaConfig& config, const std::filesystem::path& folder, at::ScalarType dtype,
                             const std::filesystem::path& tokenizer_folder, const SaveOptions& options) {
  for (const char* name : kTokenizerFiles) {
    std::error_code code;
    const std::filesystem::path source = tokenizer_folder / name;
    if (!std::filesystem::exists(source, code) || std::filesystem::equivalent(source, folder / name, code)) continue;
    write_file(folder / name, read_file(source));
  }
  write_config(folder, config, dtype, options.source);
}

/// Whether `folder` is new or empty, so that it can appear as a whole. InputError when it is a file.
inline bool is_fresh(const std::filesystem::path& folder) {
  std::error_code code;
  const bool exists = std::filesystem::exists(folder, code);
  if (exists && !std::filesystem::is_directory(folder, code)) {
    throw InputError(folder.string(), ": is a file, expected a folder");
  }
  return !exists || std::filesystem::is_empty(folder, code);
}

}  // namespace detail

/// Writes weights (as `dtype`, adapters left out), config.json, generation_config.json and the tokenizer files of
/// `tokenizer_folder`. A new or empty folder appears as a whole; in one that holds other files each file is replaced
/// atomically, weights first, and the others stay.
template <class Model>
void save_model(const Model& model, const std::filesystem::path& folder, at::ScalarType dtype,
                const std::filesystem::path& tokenizer_folder, const SaveOptions& options = {}) {
  const auto write = [&](const std::filesystem::path& target) {
    save_parameters(model, target, dtype, options.max_shard_size);
    detail::write_side_files(model.config(), target, dtype, tokenizer_folder, options);
  };
  if (!detail::is_fresh(folder)) return write(folder);
  AtomicDirectory fresh(folder);
  write(fresh.path());
  fresh.commit();
}

}  // namespace ilme::hf
