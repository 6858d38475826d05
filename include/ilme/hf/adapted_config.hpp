/// config.json and generation_config.json of a model that moves to another tokenizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ilme/core/json.hpp>

namespace ilme::hf {

/// Special ids of the model with its new tokenizer.
struct SpecialIds {
  std::optional<std::int64_t> bos, pad;
  std::vector<std::int64_t> eos;
};

/// The new id for an old one; nothing when no new token took the old one's place.
using IdMap = std::function<std::optional<std::int64_t>(std::int64_t old_id)>;

namespace detail {

/// A key whose value is an id, or ids in lists: bos_token_id, forced_eos_token_id, bad_words_ids, suppress_tokens, ...
inline bool holds_ids(const std::string& key) {
  return key.ends_with("_token_id") || key.ends_with("_token_ids") || key.ends_with("suppress_tokens") ||
         key == "bad_words_ids" || key == "force_words_ids";
}

/// Pairs of ids and other numbers, which are not worth following.
inline bool mixes_ids(const std::string& key) { return key == "sequence_bias" || key == "forced_decoder_ids"; }

/// `value` with new ids; null when there is none. A word of several ids goes as a whole when one of them is gone.
inline Json mapped_ids(const Json& value, const IdMap& new_id, bool whole = false) {
  if (value.is_number_integer()) {
    const auto id = new_id(value.get<std::int64_t>());
    return id ? Json(*id) : Json();
  }
  if (!value.is_array()) return {};
  const bool words = !value.empty() && value.front().is_array();
  Json out = Json::array();
  for (const Json& member : value) {
    Json mapped = mapped_ids(member, new_id, words);
    if (!mapped.is_null()) {
      out.push_back(std::move(mapped));
    } else if (whole) {
      return {};
    }
  }
  return out.empty() ? Json() : out;
}

/// Rewrites every key that holds ids and appends what happened to `notes`.
inline void map_ids(Json& config, const IdMap& new_id, const std::string& file, std::vector<std::string>& notes) {
  std::vector<std::string> dropped;
  for (auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    if (mixes_ids(key)) {
      dropped.push_back(key);
    } else if (holds_ids(key)) {
      Json mapped = mapped_ids(value, new_id);
      if (mapped.is_null()) {
        dropped.push_back(key);
      } else {
        value = std::move(mapped);
      }
    }
  }
  for (const std::string& key : dropped) {
    if (key != "bos_token_id" && key != "eos_token_id" && key != "pad_token_id" && key != "suppress_tokens") {
      notes.push_back(file + ": " + key + " " + ilme::detail::short_dump(config.at(key)) +
                      " left out: its tokens are not in the new vocabulary");
    }
    config.erase(key);
  }
}

inline Json ids_or_null(const std::vector<std::int64_t>& ids) {
  return ids.empty() ? Json() : ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

}  // namespace detail

/// The old config.json for `vocabulary` rows. Everything that has nothing to do with tokens stays as it is.
inline Json adapted_config(Json config, std::int64_t vocabulary, const SpecialIds& special, const IdMap& new_id,
                           std::vector<std::string>& notes) {
  detail::map_ids(config, new_id, "config.json", notes);
  config["vocab_size"] = vocabulary;
  config["bos_token_id"] = special.bos ? Json(*special.bos) : Json();
  config["eos_token_id"] = detail::ids_or_null(special.eos);
  config["pad_token_id"] = special.pad ? Json(*special.pad) : Json();
  return config;
}

/// The old generation_config.json (an empty object when there was none). `suppressed`: ids that stand for no token;
/// they join what suppress_tokens names.
inline Json adapted_generation_config(Json config, const SpecialIds& special,
                                      const std::vector<std::int64_t>& suppressed, const IdMap& new_id,
                                      std::vector<std::string>& notes) {
  detail::map_ids(config, new_id, "generation_config.json", notes);
  const auto set = [&](const char* key, const Json& value) {
    if (value.is_null()) {
      config.erase(key);
    } else {
      config[key] = value;
    }
  };
  set("bos_token_id", special.bos ? Json(*special.bos) : Json());
  set("eos_token_id", detail::ids_or_null(special.eos));
  set("pad_token_id", special.pad ? Json(*special.pad) : Json());
  std::vector<std::int64_t> ids = suppressed;
  if (config.contains("suppress_tokens")) {
    for (const Json& id : config.at("suppress_tokens")) ids.push_back(id.get<std::int64_t>());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  set("suppress_tokens", ids.empty() ? Json() : Json(ids));
  return config;
}

}  // namespace ilme::hf
