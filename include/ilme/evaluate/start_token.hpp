/// The token that a text is conditioned on.
#pragma once

#include <string>

#include <ilme/core/error.hpp>
#include <ilme/nn/llama_config.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::evaluate {

struct StartToken {
  text::TokenId id = 0;
  std::string source;  ///< who says so, for people
};

/// What stands before the first token of a document, so that the first one can be scored: the tokenizer's BOS; where it
/// has none (no tokenizer_config.json, or a null bos_token as in Qwen2) the config's bos_token_id; else EOS, the
/// separator of documents, which lm-evaluation-harness takes too. Throws InputError when there is none of them.
inline StartToken start_token(const text::Tokenizer& tokenizer, const nn::LlamaConfig& config) {
  const auto known = [&](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(tokenizer.vocabulary_size());
  };
  if (const auto bos = tokenizer.bos_id()) return {*bos, "the tokenizer's BOS"};
  if (known(config.bos_token_id))
    return {static_cast<text::TokenId>(config.bos_token_id), "config.json's bos_token_id"};
  if (const auto eos = tokenizer.eos_id()) return {*eos, "the tokenizer's EOS, there is no BOS"};
  for (const std::int64_t id : config.eos_token_ids) {
    if (known(id)) return {static_cast<text::TokenId>(id), "config.json's eos_token_id, there is no BOS"};
  }
  throw InputError(
      "the model has no BOS and no EOS, so the first token of a text cannot be scored: set bos_token in "
      "tokenizer_config.json or bos_token_id in config.json");
}

}  // namespace ilme::evaluate
