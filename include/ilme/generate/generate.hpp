/// Text from a model, token by token, for one prompt or for several at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <ilme/core/error.hpp>
#include <ilme/generate/sampling.hpp>
#include <ilme/nn/concepts.hpp>
#include <ilme/nn/kv_cache.hpp>
#include <ilme/ops/linear.hpp>

namespace ilme::generate {

struct GenerateOptions {
  SamplingOptions sampling = {};
  std::int64_t max_tokens = 256;
  std::vector<std::int64_t> stop_ids = {};             ///< any of them ends the text; it is not part of it
  std::function<bool(std::int64_t id)> on_token = {};  ///< called for every new id; false ends the text
  /// Prompt and text together hold at most so many tokens; 0: the model's max_position_embeddings.
  std::int64_t context_length = 0;

  void validate() const {
    sampling.validate();
    if (max_tokens < 0) throw InputError("max-tokens is ", max_tokens, ", expected 0 or more");
    if (context_length < 0) throw InputError("context-length is ", context_length, ", expected 0 or more");
  }
};

struct Generation {
  std::vector<std::int64_t> ids;  ///< the new ones, without the stop id
  bool stopped = false;           ///< by a stop id, as against max_tokens, the context's end or on_token
};

/// Continues several prompts in one batch. Each prompt is run through the model alone, then every step adds a token to
/// each sequence that has not ended; those that have ended leave the batch. Options belong to the sequence. With
/// ilme::kernels a sequence on the CPU gets the same bits whatever the batch is (up to ops::kFewRows sequences);
/// without them the same up to the order of sums.
template <nn::CachedModel Model>
class Generator {
 public:
  /// The model must outlive the generator; it should be in evaluation mode.
  explicit Generator(Model& model) : model_(model) {
    const nn::LlamaConfig& config = model.config();
    head_ = model.lm_head_weight().detach().narrow(0, 0, config.used_vocabulary());
  }

  /// Runs a prompt (not empty) through the model and draws its first token. Returns the sequence's number, counted from
  /// 0. Throws InputError for options out of their range, a prompt that fills the context, or an id that the model
  /// lacks.
  std::size_t add(std::span<const std::int64_t> prompt, const GenerateOptions& options) {
    options.validate();
    const nn::LlamaConfig& config = model_.config();
    if (prompt.empty()) throw InputError("the prompt has no token; start it with BOS");
    const std::int64_t context = options.context_length > 0 ? options.context_length : config.max_position_embeddings;
    if (static_cast<std::int64_t>(prompt.size()) >= context) {
      throw InputError("the prompt has ", prompt.size(), " tokens, but the context holds ", context,
                       options.context_length > 0 ? " (context-length)" : " (the model's max_position_embeddings)",
                       ": shorten it to leave room for an answer");
    }
    for (const std::int64_t id : prompt) {
      if (id < 0 || id >= config.vocab_size) {
        throw InputError("the prompt has the id ", id, ", but the model's vocabulary is ", config.vocab_size,
                         ": is the tokenizer another model's?");
      }
    }
    const std::int64_t room = context - static_cast<std::int64_t>(prompt.size());
    sequences_.push_back({.options = options,
                          .seen = {prompt.begin(), prompt.end()},
                          .limit = std::min(options.max_tokens, room),
                          .cache = std::make_unique<nn::KvCache>(config.num_hidden_layers)});
    results_.emplace_back();
    const std::size_t number = results_.size() - 1;
    if (sequences_[number].limit == 0) {
      sequences_[number].cache.reset();
      return number;
    }
    active_.push_back(number);
    nn::KvCache* const caches[] = {sequences_[number].cache.get()};
    draw(at::tensor(at::IntArrayRef(prompt.data(), prompt.size()), at::kLong).unsqueeze(0), caches, {number});
    return number;
  }

  /// A token more for every sequence that has not ended; false when all have.
  bool step() {
    if (active_.empty()) return false;
    std::vector<std::int64_t> last;
    std::vector<nn::KvCache*> caches;
    for (const std::size_t number : active_) {
      last.push_back(sequences_[number].seen.back());
      caches.push_back(sequences_[number].cache.get());
    }
    draw(at::tensor(last, at::kLong).unsqueeze(1), caches, active_);
    return !active_.empty();
  }

  const Generation& result(std::size_t number) const { return results_.at(number); }

 private:
  struct Sequence {
    GenerateOptions options;
    std::vector<std::int64_t> seen;  // prompt and text
    std::int64_t limit;              // of new tokens
    std::unique_ptr<nn::KvCache> cache;
  };

  /// Runs the ids [sequences, new] of the numbered sequences and adds what is drawn after the last of each.
  void draw(const at::Tensor& ids, std::span<nn::KvCache* const> caches, std::vector<std::size_t> numbers) {
    const c10::NoGradGuard no_gradient;
    const at::Tensor last = model_.hidden(ids.to(head_.device()), caches).select(1, -1).contiguous();
    const at::Tensor logits = ops::logits(last, head_).cpu();
    float* const values = logits.mutable_data_ptr<float>();
    const auto vocabulary = static_cast<std::size_t>(logits.size(1));
    for (std::size_t row = 0; row < numbers.size(); ++row) {
      Sequence& sequence = sequences_[numbers[row]];
      Generation& result = results_[numbers[row]];
      const GenerateOptions& options = sequence.options;
      const std::int64_t id = sample({values + row * vocabulary, vocabulary}, sequence.seen,
                                     model_.config().suppress_tokens, options.sampling, result.ids.size());
      result.stopped = std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end();
      bool ended = result.stopped;
      if (!ended) {
        sequence.seen.push_back(id);
        result.ids.push_back(id);
        const bool wanted = !options.on_token || options.on_token(id);
        ended = !wanted || static_cast<std::int64_t>(result.ids.size()) >= sequence.limit;
      }
      if (ended) {
        sequence.cache.reset();
        std::erase(active_, numbers[row]);
      }
    }
  }

  Model& model_;
  at::Tensor head_;  // [used vocabulary, hidden]
  std::vector<Sequence> sequences_;
  std::vector<Generation> results_;
  std::vector<std::size_t> active_;  // numbers of the sequences that have not ended
};

/// Continues `prompt` (not empty). The model is run without gradients, once over the prompt and then once a token.
template <nn::CachedModel Model>
Generation generate(Model& model, std::span<const std::int64_t> prompt, const GenerateOptions& options) {
  Generator<Model> generator(model);
  generator.add(prompt, options);
  while (generator.step()) {
  }
  return generator.result(0);
}

}  // namespace ilme::generate
