/// Prompts and what a model answers to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/evaluate/repetition.hpp>
#include <ilme/generate/generate.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::evaluate {

/// A text to continue, or a conversation to answer when there are messages.
struct Prompt {
  std::string text;
  std::vector<text::Message> messages;
  std::string where;  ///< "file:line"
};

/// Reads {"prompt": text} or {"messages": [...]}, of which assistant messages at the end are left out. Throws
/// InputError that opens with `where` and names the key.
inline Prompt read_prompt(const Json& line, const std::string& where) {
  JsonObject object(line, where);
  Prompt prompt;
  prompt.where = where;
  if (object.has("prompt") == object.has("messages")) {
    throw InputError(where, ": expected either a key \"prompt\" or a key \"messages\"");
  }
  if (object.has("prompt")) {
    prompt.text = object.require<std::string>("prompt");
    return prompt;
  }
  prompt.messages = text::messages_from_json(line, where);
  while (!prompt.messages.empty() && prompt.messages.back().role == "assistant") prompt.messages.pop_back();
  if (prompt.messages.empty()) throw InputError(where, ": key \"messages\" has no user message to answer");
  return prompt;
}

/// Ids of a prompt: `start` and the text, or the conversation with the assistant's turn opened. Throws InputError that
/// names the prompt's line when the tokenizer has no chat format.
inline std::vector<std::int64_t> encode_prompt(const text::Tokenizer& tokenizer, text::TokenId start,
                                               const Prompt& prompt) {
  std::vector<text::TokenId> ids{start};
  if (prompt.messages.empty()) {
    const auto text = tokenizer.encode(prompt.text);
    ids.insert(ids.end(), text.begin(), text.end());
  } else {
    try {
      ids = text::encode_chat(tokenizer, text::detect_chat_format(tokenizer), prompt.messages,
                              /*add_generation_prompt=*/true)
                .ids;
    } catch (const InputError& error) {
      throw InputError(prompt.where, ": ", error.what());
    }
  }
  return {ids.begin(), ids.end()};
}

/// Continues every prompt, `batch` of them at a time, each as it would be alone. `options.stop_ids` end an answer.
/// Throws InputError that names the prompt's line when it leaves no room for an answer.
template <nn::CachedModel Model>
std::vector<Answer> answer_prompts(Model& model, const text::Tokenizer& tokenizer, text::TokenId start,
                                   std::span<const Prompt> prompts, const generate::GenerateOptions& options,
                                   const std::function<void(std::int64_t prompts)>& progress = {},
                                   std::size_t batch = 8) {
  std::vector<Answer> answers;
  while (answers.size() < prompts.size()) {
    const auto group = prompts.subspan(answers.size(), std::min(batch, prompts.size() - answers.size()));
    generate::Generator<Model> generator(model);
    for (const Prompt& prompt : group) {
      const std::vector<std::int64_t> ids = encode_prompt(tokenizer, start, prompt);
      try {
        generator.add(ids, options);
      } catch (const InputError& error) {
        throw InputError(prompt.where, ": ", error.what());
      }
    }
    while (generator.step()) {
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const generate::Generation& said = generator.result(i);
      const std::vector<text::TokenId> ids(said.ids.begin(), said.ids.end());
      answers.push_back({said.ids, tokenizer.decode(ids, /*skip_special=*/true), said.stopped});
      if (progress) progress(static_cast<std::int64_t>(answers.size()));
    }
  }
  return answers;
}

}  // namespace ilme::evaluate
