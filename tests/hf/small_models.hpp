/// Tokenizers and models that are made in a test, small enough to work out by hand.
#pragma once

#include "support/catch_torch.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/hf/config.hpp>
#include <ilme/hf/weights.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/ops/policy.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::test {

/// A tokenizer of control tokens, the bytes and merges ("a|b": the tokens a and b become ab), in this order.
inline text::TokenizerModel small_tokenizer_model(const std::vector<std::string>& specials,
                                                  const std::vector<std::pair<std::string, std::string>>& merges,
                                                  Json config = Json::object()) {
  text::TokenizerModel model;
  const auto add = [&](const std::string& bytes) {
    model.tokens.push_back(bytes);
    return static_cast<text::TokenId>(model.tokens.size() - 1);
  };
  for (const std::string& name : specials) model.added_tokens.push_back({name, add(name)});
  std::map<std::string, text::TokenId> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    ids[bytes] = add(bytes);
  }
  for (const auto& [left, right] : merges) {
    const text::TokenId result = add(left + right);
    model.merges.push_back({ids.at(left), ids.at(right), result});
    ids[left + right] = result;
  }
  model.pre_tokenizer = text::PreTokenizer::named("llama3");
  model.config = std::move(config);
  return model;
}

inline nn::LlamaConfig small_config(std::int64_t vocabulary, bool tied) {
  nn::LlamaConfig config;
  config.vocab_size = vocabulary;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  config.tie_word_embeddings = tied;
  return config;
}

/// Writes a model folder with random weights; `config` gives the special ids.
inline void write_small_model(const std::filesystem::path& folder, const nn::LlamaConfig& config,
                              const text::TokenizerModel& tokenizer, at::ScalarType dtype = at::kFloat) {
  nn::Llama<ops::Reference> model(config);
  model.initialize(7);
  hf::save_parameters(model, folder, dtype);
  hf::write_config(folder, config, dtype);
  text::save_tokenizer(tokenizer, folder);
}

}  // namespace ilme::test
