/// What a folder's chat template does beyond the chat format: a system message of its own.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/chat.hpp>

namespace ilme::text {

/// The Jinja template of a model folder: chat_template.jinja, else `chat_template` of tokenizer_config.json, as
/// Transformers looks for it; "" without one.
inline std::string read_chat_template(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "chat_template.jinja")) return read_file(folder / "chat_template.jinja");
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(config)) return {};
  const Json object = read_json(config);
  const auto entry = object.find("chat_template");
  return entry != object.end() && entry->is_string() ? entry->get<std::string>() : std::string();
}

/// The system message that a ChatML template puts before a conversation that has none (SmolLM2, Qwen2.5); "" for a
/// template that adds none. Templates are not executed: it is the text of a string literal that begins with
/// `<|im_start|>system` and a line break and holds the message to its `<|im_end|>`.
inline std::string default_system_message(std::string_view jinja) {
  std::string plain(jinja);  // a line break in a literal is written as such or as \n
  for (std::size_t at = 0; (at = plain.find("\\n", at)) != std::string::npos;) plain.replace(at, 2, 1, '\n');
  constexpr std::string_view kOpen = "<|im_start|>system\n", kClose = "<|im_end|>";
  for (std::size_t at = 0; (at = plain.find(kOpen, at)) != std::string::npos;) {
    at += kOpen.size();
    const std::string_view rest = std::string_view(plain).substr(at);
    const std::size_t length = rest.find(kClose), quote = rest.find_first_of("'\"");  // a quote ends the literal
    if (length != std::string_view::npos && length > 0 && length < quote) return std::string(rest.substr(0, length));
  }
  return {};
}

/// The conversation as the template would open it: with `default_system` first, unless that is empty or the first
/// message is the system's.
inline std::vector<Message> with_system_message(std::span<const Message> messages, const std::string& default_system) {
  std::vector<Message> all(messages.begin(), messages.end());
  if (!default_system.empty() && (all.empty() || all.front().role != "system")) {
    all.insert(all.begin(), {"system", default_system});
  }
  return all;
}

}  // namespace ilme::text
