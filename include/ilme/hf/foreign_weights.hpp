/// Folders that hold a model in another format: say which, and how to convert it.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <ilme/core/error.hpp>

namespace ilme::hf {

/// Throws InputError that names the remedy when `folder` holds weights that are not safetensors of Hugging Face's
/// layout: Meta's or Mistral's originals, PyTorch's pickles, GGUF. Does nothing for other folders.
inline void refuse_foreign_weights(const std::filesystem::path& folder) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const auto refuse = [&](const char* what, const std::string& remedy) {
      throw InputError(folder.string(), ": holds ", what, " (", name, "), not a Hugging Face folder; ", remedy);
    };
    if (name.starts_with("consolidated.") && name.ends_with(".pth")) {
      refuse(
          "an original Meta checkpoint",
          "download the model's Hugging Face folder, or convert it with transformers 4.46 (later packages leave the "
          "script out): python -m transformers.models.llama.convert_llama_weights_to_hf --input_dir DIR --output_dir "
          "OUTPUT --llama_version 3.2 --num_shards 1");
    }
    if (name == "consolidated.safetensors") {
      refuse("a checkpoint in Mistral's own format", "download the model's Hugging Face folder");
    }
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) {
      refuse("weights as a PyTorch pickle",
             "convert them with Transformers: python -c \"from transformers import AutoModelForCausalLM as M; "
             "M.from_pretrained('DIR', dtype='auto').save_pretrained('OUTPUT')\"");
    }
    if (name.ends_with(".gguf")) {
      refuse("a GGUF file", "download the model's Hugging Face folder with safetensors");
    }
  }
}

}  // namespace ilme::hf
