/// How a model folder wants its tokens drawn.
#pragma once

#include <filesystem>

#include <ilme/core/json.hpp>
#include <ilme/generate/sampling.hpp>

namespace ilme::generate {

/// `fallback` with what generation_config.json of the folder says of do_sample (false: the likeliest token),
/// temperature, top_k, top_p, min_p and repetition_penalty. Throws InputError that names the file for a value of
/// another type.
inline SamplingOptions folder_sampling(const std::filesystem::path& folder, SamplingOptions fallback) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return fallback;
  const Json json = read_json(path);
  JsonObject object(json, path.string());
  SamplingOptions options = fallback;
  options.temperature = object.get("temperature", options.temperature);
  if (!object.get("do_sample", true)) options.temperature = 0;
  options.top_k = object.get("top_k", options.top_k);
  options.top_p = object.get("top_p", options.top_p);
  options.min_p = object.get("min_p", options.min_p);
  options.repetition_penalty = object.get("repetition_penalty", options.repetition_penalty);
  return options;
}

}  // namespace ilme::generate
