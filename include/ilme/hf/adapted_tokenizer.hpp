/// The tokenizer files of a model that moves to another tokenizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/special_tokens.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::hf {

namespace detail {

inline constexpr const char* kTemplateName = "chat_template.jinja";
inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";

/// The chat template of a folder: chat_template.jinja, else that of tokenizer_config.json; nothing when there is none.
inline std::optional<std::string> read_chat_template(const std::filesystem::path& folder, const Json& config) {
  std::error_code code;
  if (std::filesystem::exists(folder / kTemplateName, code)) return read_file(folder / kTemplateName);
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const Json& value = config.at("chat_template");
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {  // several, by name
    for (const Json& entry : value) {
      if (entry.is_object() && entry.value("name", "") == "default") return entry.value("template", "");
    }
  }
  return std::nullopt;
}

/// Names of the special tokens of `known` that stand in `text` and that `tokenizer` does not have as special ones.
inline std::vector<std::string> missing_tokens(const std::string& text, const text::Tokenizer& known,
                                               const text::Tokenizer& tokenizer) {
  std::vector<std::string> missing;
  for (const auto& token : known.model().added_tokens) {
    if (!token.special || text.find(token.content) == std::string::npos) continue;
    const auto id = tokenizer.token_to_id(token.content);
    if (!id || !tokenizer.is_special(*id)) missing.push_back(token.content);
  }
  return missing;
}

inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace detail

/// Writes the new tokenizer's files into `output`: those of its folder, or, of a folder without tokenizer.json
/// (tiktoken) or tokenizer_config.json, ones made from what was read. Its chat template is kept; without one the old
/// model's is, if the new tokenizer has all special tokens in it. model_max_length is cut to `max_length`. Appends to
/// `notes` what happened to the template.
inline void write_adapted_tokenizer(const std::filesystem::path& output, const std::filesystem::path& new_folder,
                                    const text::Tokenizer& new_tokenizer, const std::filesystem::path& old_folder,
                                    const text::Tokenizer& old_tokenizer, std::int64_t max_length,
                                    std::vector<std::string>& notes) {
  std::error_code code;
  const auto copy = [&](const char* name) {
    if (!std::filesystem::exists(new_folder / name, code)) return false;
    write_file(output / name, read_file(new_folder / name));
    return true;
  };
  if (!copy("tokenizer.json")) write_file(output / "tokenizer.json", text::tokenizer_json(new_tokenizer.model()));
  for (const char* name : {"special_tokens_map.json", "added_tokens.json", detail::kTemplateName}) copy(name);

  Json config = new_tokenizer.model().config;
  auto chat_template = detail::read_chat_template(new_folder, config);
  if (!config.is_object()) {
    config = text::make_tokenizer_config(new_tokenizer.model().added_tokens);
    if (chat_template) config.erase("chat_template");
    if (!chat_template) chat_template = detail::read_chat_template(output, config);
  }
  const auto old_template = detail::read_chat_template(old_folder, old_tokenizer.model().config);
  if (chat_template) {
    if (const auto unknown = detail::missing_tokens(*chat_template, new_tokenizer, old_tokenizer); !unknown.empty()) {
      notes.push_back("the chat template is the new tokenizer's; the model has never seen its " +
                      detail::joined(unknown) + ": fine-tune it on chats before it can chat");
    } else if (old_template && *old_template != *chat_template) {
      notes.push_back("the chat template is the new tokenizer's, not the old one's");
    }
  } else if (old_template) {
    if (const auto unknown = detail::missing_tokens(*old_template, old_tokenizer, new_tokenizer); unknown.empty()) {
      write_file(output / detail::kTemplateName, *old_template);
      notes.push_back("the chat template is the old tokenizer's: the new one has none, but all special tokens of it");
    } else {
      notes.push_back("no chat template: the new tokenizer has none and lacks " + detail::joined(unknown) +
                      " of the old one");
    }
  }
  if (config.contains("model_max_length") && config.at("model_max_length").is_number() &&
      config.at("model_max_length").get<double>() > static_cast<double>(max_length)) {
    config["model_max_length"] = max_length;
  }
  write_json(output / detail::kTokenizerConfigName, config);
}

}  // namespace ilme::hf
