/// What a special token is for, so that a token of one tokenizer finds its counterpart in another under another name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/json.hpp>
#include <ilme/text/tokenizer.hpp>

namespace ilme::hf {

enum class TokenRole {
  begin_of_text,
  end_of_text,
  padding,
  unknown,
  turn_start,  // opens a message; the name of the speaker follows
  header_end,  // between the name of the speaker and the message
  turn_end,    // closes a message
};

/// Ids that the model's configuration gives to roles.
struct ConfiguredIds {
  std::optional<text::TokenId> bos = {}, eos = {}, pad = {};
};

namespace detail {

inline constexpr std::size_t kTokenRoles = 7;

struct RoleNames {
  const char* title;
  std::vector<std::string_view> names;  ///< under which published tokenizers have it
};

/// By TokenRole.
inline const std::array<RoleNames, kTokenRoles>& role_names() {
  static const std::array<RoleNames, kTokenRoles> names{{
      {"begin of text", {"<|begin_of_text|>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<|startoftext|>"}},
      {"end of text", {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|eos|>", "[EOS]"}},
      {"padding", {"<|finetune_right_pad_id|>", "<pad>", "<|pad|>", "[PAD]", "<|padding|>"}},
      {"unknown", {"<unk>", "<|unk|>", "[UNK]"}},
      {"turn start", {"<|start_header_id|>", "<|im_start|>", "<start_of_turn>"}},
      {"header end", {"<|end_header_id|>"}},
      {"turn end", {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|eom_id|>"}},
  }};
  return names;
}

}  // namespace detail

inline const char* role_title(TokenRole role) { return detail::role_names()[static_cast<std::size_t>(role)].title; }

/// The special tokens of one tokenizer by what they are for: first by the names that published tokenizers use, then by
/// tokenizer_config.json (bos_token, eos_token, pad_token, unk_token), then by the ids of the model's configuration.
/// Names come first because an instruction-tuned model often declares its end of turn as eos_token.
class SpecialRoleFinder {
 public:
  explicit SpecialRoleFinder(text::Tokenizer tokenizer, ConfiguredIds configured = {})
      : tokenizer_(std::move(tokenizer)), configured_(configured) {}

  /// The token that plays `role`; nothing when there is none.
  std::optional<text::TokenId> find(TokenRole role) const {
    for (const std::string_view name : detail::role_names()[static_cast<std::size_t>(role)].names) {
      if (const auto id = special(name)) return id;
    }
    return declared(role);
  }

  /// What the special token `id` is for; nothing when neither its name nor a declaration says so.
  std::optional<TokenRole> role_of(text::TokenId id) const {
    const std::string_view name = tokenizer_.token_bytes(id);
    for (std::size_t role = 0; role < detail::kTokenRoles; ++role) {
      const auto& names = detail::role_names()[role].names;
      if (std::find(names.begin(), names.end(), name) != names.end()) return static_cast<TokenRole>(role);
    }
    for (const TokenRole role :
         {TokenRole::begin_of_text, TokenRole::end_of_text, TokenRole::padding, TokenRole::unknown}) {
      if (declared(role) == id) return role;
    }
    return std::nullopt;
  }

 private:
  std::optional<text::TokenId> special(std::string_view name) const {
    const auto id = tokenizer_.token_to_id(name);
    return id && tokenizer_.is_special(*id) ? id : std::nullopt;
  }

  std::optional<text::TokenId> declared(TokenRole role) const {
    const auto first = [](std::optional<text::TokenId> a, std::optional<text::TokenId> b) { return a ? a : b; };
    switch (role) {
      case TokenRole::begin_of_text:
        return first(tokenizer_.bos_id(), configured_.bos);
      case TokenRole::end_of_text:
        return first(tokenizer_.eos_id(), configured_.eos);
      case TokenRole::padding:
        return first(tokenizer_.pad_id(), configured_.pad);
      case TokenRole::unknown: {
        const Json& config = tokenizer_.model().config;
        if (!config.is_object() || !config.contains("unk_token")) return std::nullopt;
        const Json& token = config.at("unk_token");  // a string, or an added token written out
        const Json content = token.is_object() ? token.value("content", Json()) : token;
        return content.is_string() ? special(content.get<std::string>()) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  text::Tokenizer tokenizer_;
  ConfiguredIds configured_;
};

}  // namespace ilme::hf
