/// Conversations as ids: the chat formats of Llama 3 and ChatML, with the mask of what is trained on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer.hpp>
#include <ilme/text/unicode.hpp>

namespace ilme::text {

enum class ChatFormat {
  llama3,  // <|begin_of_text|> once, then for each message <|start_header_id|>role<|end_header_id|>\n\ntext<|eot_id|>
  chatml,  // for each message <|im_start|>role\ntext<|im_end|>\n
};

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

namespace detail {

inline std::vector<const char*> chat_control_tokens(ChatFormat format) {
  if (format == ChatFormat::chatml) return {"<|im_start|>", "<|im_end|>"};
  return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
}

inline std::string missing_chat_tokens(const Tokenizer& tokenizer, ChatFormat format) {
  std::string missing;
  for (const char* name : chat_control_tokens(format)) {
    const auto id = tokenizer.token_to_id(name);
    if (!id || !tokenizer.is_special(*id)) missing += missing.empty() ? name : std::string(", ") + name;
  }
  return missing;
}

inline TokenId control_token(const Tokenizer& tokenizer, const char* name) {
  const auto id = tokenizer.token_to_id(name);
  if (!id || !tokenizer.is_special(*id)) {
    throw InputError("the tokenizer has no special token ", name, ", which the chat format needs");
  }
  return *id;
}

/// Python's str.strip(), which is Jinja's `trim`: \s and the four separators U+001C to U+001F.
inline std::string_view trim(std::string_view text) {
  const auto blank = [](char32_t c) { return char_classes()[c] >= CharClass::space || (c >= 0x1C && c <= 0x1F); };
  while (!text.empty()) {
    const DecodedCharacter first = decode_utf8(text.data(), text.data() + text.size());
    if (!blank(first.code_point)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    const DecodedCharacter last = last_character(text);
    if (!blank(last.code_point)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

}  // namespace detail

/// The format whose special tokens the tokenizer has, llama3 first. Throws InputError that names what is missing.
inline ChatFormat detect_chat_format(const Tokenizer& tokenizer) {
  for (const ChatFormat format : {ChatFormat::llama3, ChatFormat::chatml}) {
    if (detail::missing_chat_tokens(tokenizer, format).empty()) return format;
  }
  throw InputError("the tokenizer has no chat format: for llama3 it lacks ",
                   detail::missing_chat_tokens(tokenizer, ChatFormat::llama3), "; for chatml it lacks ",
                   detail::missing_chat_tokens(tokenizer, ChatFormat::chatml));
}

struct EncodedChat {
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> loss_mask;  // as many; 1: trained on
};

/// Ids of a conversation, equal to those of its rendered template. The mask covers the text of each assistant message
/// and the end-of-turn token after it, by position, and nothing else. What looks like a special token inside a message
/// is text. `add_generation_prompt` opens an assistant message at the end, for a model to continue. Throws InputError
/// when the tokenizer lacks a control token or a role is unknown.
inline EncodedChat encode_chat(const Tokenizer& tokenizer, ChatFormat format, std::span<const Message> messages,
                               bool add_generation_prompt = false) {
  EncodedChat chat;
  const auto put = [&](TokenId id, bool trained) {
    chat.ids.push_back(id);
    chat.loss_mask.push_back(trained ? 1 : 0);
  };
  // Encodes `before` and `text` as one string; trained are the tokens with a byte of `text`.
  const auto put_text = [&](std::string_view before, std::string_view text, bool trained) {
    std::string joined(before);
    joined += text;
    std::size_t end = 0;
    for (const TokenId id : tokenizer.encode(joined)) {
      end += tokenizer.token_bytes(id).size();
      put(id, trained && end > before.size());
    }
  };
  const bool llama3 = format == ChatFormat::llama3;
  const TokenId open = detail::control_token(tokenizer, llama3 ? "<|start_header_id|>" : "<|im_start|>");
  const TokenId close = detail::control_token(tokenizer, llama3 ? "<|eot_id|>" : "<|im_end|>");
  const TokenId header_end = llama3 ? detail::control_token(tokenizer, "<|end_header_id|>") : 0;
  const auto put_message = [&](const std::string& role, std::string_view text, bool trained) {
    put(open, false);
    if (llama3) {
      put_text(role, "", false);
      put(header_end, false);
      put_text("\n\n", text, trained);
    } else {
      put_text(role + "\n", text, trained);
    }
  };
  if (llama3) put(detail::control_token(tokenizer, "<|begin_of_text|>"), false);
  for (const Message& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      throw InputError("unknown role \"", message.role, "\", expected system, user or assistant");
    }
    const bool trained = message.role == "assistant";
    put_message(message.role, llama3 ? detail::trim(message.content) : std::string_view(message.content), trained);
    put(close, trained);
    if (!llama3) put_text("\n", "", false);
  }
  if (add_generation_prompt) put_message("assistant", "", false);
  return chat;
}

/// The conversation in a line of chat data: `{"messages": [{"role": ..., "content": ...}, ...]}`; other keys are
/// ignored. `where` (file and line) opens every error. Throws InputError when `messages` is missing or empty, a role is
/// unknown, a content is missing or no text, or, with `needs_assistant`, no message is the assistant's.
inline std::vector<Message> messages_from_json(const Json& line_object, const std::string& where,
                                               bool needs_assistant = false) {
  JsonObject line(line_object, where);
  const Json list = line.raw("messages");
  if (!list.is_array() || list.empty()) {
    throw InputError(where, ": key \"messages\" is ", list.is_null() ? "missing" : ilme::detail::short_dump(list),
                     ", expected a list of messages");
  }
  std::vector<Message> messages;
  for (const Json& entry : list) {
    JsonObject object(entry, concat(where, ": message ", messages.size() + 1));
    Message message{object.require<std::string>("role"), object.require<std::string>("content")};
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      throw InputError(object.where(), ": unknown role \"", message.role, "\", expected system, user or assistant");
    }
    messages.push_back(std::move(message));
  }
  const auto is_assistant = [](const Message& message) { return message.role == "assistant"; };
  if (needs_assistant && std::none_of(messages.begin(), messages.end(), is_assistant)) {
    throw InputError(where, ": no message has the role assistant, so there is nothing to train on");
  }
  return messages;
}

/// The ids at which generation stops: the end of a turn, and the end of the text where the tokenizer has one.
inline std::vector<TokenId> stop_ids(const Tokenizer& tokenizer, ChatFormat format) {
  std::vector<TokenId> ids;
  std::vector<const char*> names = {"<|im_end|>", "<|endoftext|>"};
  if (format == ChatFormat::llama3) names = {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"};
  const auto add = [&](std::optional<TokenId> id) {
    if (id && tokenizer.is_special(*id) && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  };
  for (const char* name : names) add(tokenizer.token_to_id(name));
  add(tokenizer.eos_id());
  return ids;
}

}  // namespace ilme::text
