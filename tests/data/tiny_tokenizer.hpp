/// A tokenizer with a token for each byte and the control tokens of Llama 3.
#pragma once

#include <string>
#include <utility>

#include <ilme/text/tokenizer.hpp>

namespace ilme::test {

/// Ids 0..255 are the bytes; 256 <|begin_of_text|>, 257 <|end_of_text|>, 258 <|start_header_id|>,
/// 259 <|end_header_id|>, 260 <|eot_id|>. Without `roles` it has neither BOS nor EOS.
inline text::Tokenizer tiny_tokenizer(bool roles = true) {
  text::TokenizerModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* name :
       {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    model.added_tokens.push_back({name, static_cast<text::TokenId>(model.tokens.size())});
    model.tokens.emplace_back(name);
  }
  model.pre_tokenizer = text::PreTokenizer::named("llama3");
  model.config = Json::object();
  if (roles) model.config = {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|end_of_text|>"}};
  return text::Tokenizer(std::move(model));
}

}  // namespace ilme::test
