/// Which modules carry a low-rank adapter, of what rank and scaling: PEFT's LoraConfig and its matching rules, without
/// torch.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>

namespace ilme::lora {

/// The fields of adapter_config.json that plain LoRA has, under PEFT's meaning.
struct AdapterConfig {
  std::string base_model_name_or_path;
  std::int64_t rank = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  bool use_rslora = false;  ///< scaling alpha / sqrt(rank) instead of alpha / rank
  /// A module is selected when its full name is an entry or ends with "." and an entry.
  std::vector<std::string> target_modules;
  /// When not empty, used instead: a regular expression for the whole full name, or "all-linear" for every linear map
  /// but the output head.
  std::string target_pattern;
  /// Exceptions by pattern, in order; the first that matches counts. Pattern K matches a full name of the form
  /// (.*\.)?(K).
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  /// Modules that are trained and saved whole beside the adapters: "embed_tokens", "lm_head". A full name that ends
  /// with an entry is selected.
  std::vector<std::string> modules_to_save;
  /// The head goes with the embedding, as in a model that ties them; without it PEFT would train a copy of one alone.
  bool ensure_weight_tying = false;
};

/// What can be trained whole.
inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

namespace detail {

/// Whether `pattern` matches `text` from its first to its last character, as Python's re.fullmatch. Throws InputError
/// for a pattern that does not compile or backtracks without end.
inline bool full_match(const std::string& pattern, std::string_view text) {
  const auto message = [](int error) {
    PCRE2_UCHAR buffer[200] = {};
    pcre2_get_error_message(error, buffer, sizeof buffer);
    return std::string(reinterpret_cast<const char*>(buffer));
  };
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr),
      &pcre2_code_free);
  if (!code) {
    throw InputError("adapter pattern \"", pattern, "\" is not a regular expression: ", message(error), " at ", offset);
  }
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), &pcre2_match_data_free);
  const int found =
      pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
    throw InputError("adapter pattern \"", pattern, "\" cannot be matched: ", message(found));
  }
  return found >= 0;
}

/// Whether a key of rank_pattern or alpha_pattern matches (PEFT's get_pattern_key).
inline bool key_match(const std::string& key, std::string_view module_name) {
  return full_match("(.*\\.)?(" + key + ")", module_name);
}

inline bool is_all_linear(std::string pattern) {
  std::transform(pattern.begin(), pattern.end(), pattern.begin(), [](unsigned char c) { return std::tolower(c); });
  return pattern == "all-linear";
}

template <class Value>
Value pattern_value(const std::vector<std::pair<std::string, Value>>& patterns, std::string_view name, Value fallback) {
  for (const auto& [key, value] : patterns) {
    if (key_match(key, name)) return value;
  }
  return fallback;
}

}  // namespace detail

/// Whether the linear map with this full name ("model.layers.0.self_attn.q_proj") carries an adapter. Throws InputError
/// for a target_pattern that is no regular expression.
inline bool selects(const AdapterConfig& config, std::string_view module_name) {
  if (!config.target_pattern.empty()) {
    if (detail::is_all_linear(config.target_pattern))
      return module_name != "lm_head" && !module_name.ends_with(".lm_head");
    return detail::full_match(config.target_pattern, module_name);
  }
  return std::any_of(config.target_modules.begin(), config.target_modules.end(), [&](const std::string& target) {
    return module_name == target || module_name.ends_with("." + target);
  });
}

/// Whether the module with this full name is trained and saved whole.
inline bool saves_whole(const AdapterConfig& config, std::string_view module_name) {
  const auto fits = [&](const std::string& entry) { return module_name.ends_with(entry); };
  return std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(), fits);
}

/// The rank of a selected module's adapter.
inline std::int64_t rank_for(const AdapterConfig& config, std::string_view module_name) {
  return detail::pattern_value(config.rank_pattern, module_name, config.rank);
}

/// What B A x is multiplied by: alpha / rank, or alpha / sqrt(rank) with use_rslora (Kalajdzievski 2023), both after
/// the patterns.
inline double scaling_for(const AdapterConfig& config, std::string_view module_name) {
  const double alpha = detail::pattern_value(config.alpha_pattern, module_name, config.alpha);
  const auto rank = static_cast<double>(rank_for(config, module_name));
  return alpha / (config.use_rslora ? std::sqrt(rank) : rank);
}

/// The keys of rank_pattern and alpha_pattern that match none of the adapted modules: most likely mistakes.
inline std::vector<std::string> unmatched_patterns(const AdapterConfig& config,
                                                   const std::vector<std::string>& module_names) {
  std::vector<std::string> unmatched;
  const auto collect = [&](const auto& patterns, const char* where) {
    for (const auto& [key, value] : patterns) {
      const std::string& pattern = key;
      const bool used = std::any_of(module_names.begin(), module_names.end(),
                                    [&](const std::string& name) { return detail::key_match(pattern, name); });
      if (!used) unmatched.push_back(concat(where, " key \"", pattern, "\""));
    }
  };
  collect(config.rank_pattern, "rank_pattern");
  collect(config.alpha_pattern, "alpha_pattern");
  return unmatched;
}

/// Throws InputError that opens with `where` when a number is out of range or nothing is targeted.
inline void check_adapter_config(const AdapterConfig& config, const std::string& where) {
  const auto check_rank = [&](const std::string& name, std::int64_t rank) {
    if (rank < 1) throw InputError(where, ": ", name, " is ", rank, ", expected 1 or more");
  };
  const auto check_alpha = [&](const std::string& name, double alpha) {
    if (!std::isfinite(alpha)) throw InputError(where, ": ", name, " is ", alpha, ", expected a finite number");
  };
  check_rank("the rank r", config.rank);
  for (const auto& [key, rank] : config.rank_pattern) check_rank("rank_pattern \"" + key + "\"", rank);
  check_alpha("lora_alpha", config.alpha);
  for (const auto& [key, alpha] : config.alpha_pattern) check_alpha("alpha_pattern \"" + key + "\"", alpha);
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw InputError(where, ": lora_dropout is ", config.dropout, ", expected 0 or more and below 1");
  }
  for (const std::string& entry : config.modules_to_save) {
    const std::string_view embedding = kEmbeddingModule, head = kHeadModule;
    if (entry.empty() || !(embedding.ends_with(entry) || head.ends_with(entry))) {
      throw InputError(where, ": modules_to_save names \"", entry, "\", supported are embed_tokens and lm_head");
    }
  }
  if (config.target_modules.empty() && config.target_pattern.empty()) {
    throw InputError(where, ": target_modules names no module");
  }
}

}  // namespace ilme::lora
