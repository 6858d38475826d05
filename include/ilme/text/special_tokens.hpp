/// The sets of special tokens that training knows by name, and the files that go with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer_model.hpp>

namespace ilme::text {

/// Jinja for Transformers' `apply_chat_template`, equal to `encode_chat` for ChatFormat::llama3 and chatml;
/// `generation` marks what is trained on.
inline constexpr std::string_view kLlama3ChatTemplate =
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
    "{%- set text = message.content | trim + '<|eot_id|>' %}"
    "{%- if message.role == 'assistant' %}{% generation %}{{- text }}{% endgeneration %}{%- else %}{{- text }}{%- "
    "endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}";
inline constexpr std::string_view kChatmlChatTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- set text = message.content + '<|im_end|>' %}"
    "{%- if message.role == 'assistant' %}{% generation %}{{- text }}{% endgeneration %}{%- else %}{{- text }}{%- "
    "endif %}"
    "{{- '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// The tokens of the set `llama3` or `chatml`; none for `none` or ""; else `name` is itself a list, separated by
/// commas. Throws InputError on an empty member and on one that is there twice.
inline std::vector<std::string> special_token_set(const std::string& name) {
  if (name == "none" || name.empty()) return {};
  if (name == "llama3") {
    return {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>",      "<|finetune_right_pad_id|>"};
  }
  if (name == "chatml") return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::string> tokens;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(',', begin), name.size());
    tokens.push_back(name.substr(begin, end - begin));
    begin = end + 1;
    if (tokens.back().empty()) throw InputError("special tokens \"", name, "\": an empty one in the list");
    if (std::count(tokens.begin(), tokens.end(), tokens.back()) > 1) {
      throw InputError("special tokens \"", name, "\": \"", tokens.back(), "\" is there twice");
    }
  }
  return tokens;
}

/// The parts that special tokens play; "" where there is none.
struct SpecialRoles {
  std::string bos, eos, pad;
};

/// Roles by the well-known names among `tokens`: <|begin_of_text|>; <|end_of_text|> or <|endoftext|>;
/// <|finetune_right_pad_id|> or <|endoftext|>.
inline SpecialRoles guess_roles(const std::vector<AddedToken>& tokens) {
  const auto first_of = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names) {
      for (const AddedToken& token : tokens) {
        if (token.content == name) return name;
      }
    }
    return "";
  };
  return {first_of({"<|begin_of_text|>"}), first_of({"<|end_of_text|>", "<|endoftext|>"}),
          first_of({"<|finetune_right_pad_id|>", "<|endoftext|>"})};
}

/// `tokenizer_config.json` for a tokenizer with these added tokens: roles by guess_roles, and the chat template whose
/// tokens are there.
inline Json make_tokenizer_config(const std::vector<AddedToken>& tokens) {
  const auto has = [&](std::string_view name) {
    return std::any_of(tokens.begin(), tokens.end(), [&](const AddedToken& token) { return token.content == name; });
  };
  const SpecialRoles roles = guess_roles(tokens);
  Json config = Json::object();
  if (!roles.bos.empty()) config["bos_token"] = roles.bos;
  if (!roles.eos.empty()) config["eos_token"] = roles.eos;
  if (!roles.pad.empty()) config["pad_token"] = roles.pad;
  if (has("<|begin_of_text|>") && has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>")) {
    config["chat_template"] = kLlama3ChatTemplate;
  } else if (has("<|im_start|>") && has("<|im_end|>")) {
    config["chat_template"] = kChatmlChatTemplate;
  }
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = 131072;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config;
}

/// A post-processor for `tokenizer.json` that opens every text with the token `bos`, as Llama 3's does; a plain
/// ByteLevel one when `bos` is "".
inline Json make_post_processor(const std::string& bos, TokenId bos_id) {
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  if (bos.empty()) return byte_level;
  const auto special = [&](int type) { return Json{{"SpecialToken", {{"id", bos}, {"type_id", type}}}}; };
  const auto text = [](const char* name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  Json known = Json::object();
  known[bos] = {{"id", bos}, {"ids", Json::array({bos_id})}, {"tokens", Json::array({bos})}};
  Json processor = {{"type", "TemplateProcessing"},
                    {"single", Json::array({special(0), text("A", 0)})},
                    {"pair", Json::array({special(0), text("A", 0), special(1), text("B", 1)})},
                    {"special_tokens", known}};
  return {{"type", "Sequence"}, {"processors", Json::array({byte_level, processor})}};
}

}  // namespace ilme::text
