/// Parameters chosen by the pattern of their names, for rates and decays of their own and for phases of training.
#pragma once

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ilme/core/error.hpp>

namespace ilme::optim {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// The trainable parameters of a module under their full names; a tensor that stands under two names comes once.
template <class Module>
NamedParameters trainable_parameters(const Module& module) {
  NamedParameters parameters;
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

/// What the parameters whose full name matches `pattern` have of their own; where several groups match, the first that
/// sets a value gives it.
struct ParameterGroup {
  std::string pattern;                                       ///< as matches() takes it
  std::optional<double> learning_rate_scale = std::nullopt;  ///< factor on each step's learning rate
  std::optional<double> weight_decay = std::nullopt;         ///< also of vectors
};

/// Whether a glob ("model.embed_tokens.*", "*norm*", "*.layers.[01].*") matches the whole of a name; dots are ordinary
/// characters.
inline bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

namespace detail {

/// The names with "*" for numbers, each once: what patterns can be made of.
inline std::string name_examples(const NamedParameters& parameters) {
  constexpr std::size_t kMost = 16;
  std::vector<std::string> kinds;
  for (const auto& [name, tensor] : parameters) {
    std::string kind;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
      if (digit && !kind.empty() && (kind.back() == '*' || kind.back() == '.')) {
        if (kind.back() == '.') kind += '*';
      } else {
        kind += name[i];
      }
    }
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(kinds.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + kinds[i];
  return kinds.size() > kMost ? text + ", ..." : text;
}

}  // namespace detail

/// Throws InputError that names the pattern and shows what names there are, when it matches none.
inline void require_match(const std::string& pattern, const NamedParameters& parameters) {
  const auto fits = [&](const auto& parameter) { return matches(pattern, parameter.first); };
  if (std::any_of(parameters.begin(), parameters.end(), fits)) return;
  throw InputError("pattern \"", pattern,
                   "\" matches no parameter that is trained; their names: ", detail::name_examples(parameters));
}

}  // namespace ilme::optim
