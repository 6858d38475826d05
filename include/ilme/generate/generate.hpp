/// Text from a model, token by token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/generate/sampling.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/nn/kv_cache.hpp>

namespace ilme::generate {

struct GenerateOptions {
  SamplingOptions sampling = {};
  std::int64_t max_tokens = 256;
  std::vector<std::int64_t> stop_ids = {};             ///< any of them ends the text; it is not part of it
  std::function<bool(std::int64_t id)> on_token = {};  ///< called for every new id; false ends the text
};

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new ones, without the stop id
  bool stopped = false;           ///< by a stop id, as against max_tokens or on_token
};

/// Continues `prompt` (not empty). The model is run without gradients, once over the prompt and then once a token.
template <nn::CachedModel Model>
Generation generate(Model& model, std::span<const std::int64_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) throw InputError("the prompt has no token; start it with BOS");
  options.sampling.validate();
  const c10::NoGradGuard no_gradient;
  nn::KvCache cache(model.config().num_hidden_layers);
  at::Tensor fresh = at::tensor(at::IntArrayRef(prompt.data(), prompt.size()), at::kLong).unsqueeze(0);
  Generation result;
  while (static_cast<std::int64_t>(result.ids.size()) < options.max_tokens) {
    const at::Tensor last = model.hidden(fresh, cache).select(1, -1);
    const at::Tensor logits = at::matmul(last, model.lm_head_weight().t())[0].to(at::kFloat);
    const std::int64_t id = sample(logits, options.sampling, result.ids.size());
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
      result.stopped = true;
      break;
    }
    result.ids.push_back(id);
    if (options.on_token && !options.on_token(id)) break;
    fresh = at::full({1, 1}, id, at::kLong);
  }
  return result;
}

}  // namespace ilme::generate
