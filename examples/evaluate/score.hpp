/// Scoring of one model in ilme-evaluate.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/evaluate/bits_per_byte.hpp>
#include <ilme/evaluate/choice_scorer.hpp>
#include <ilme/evaluate/prompts.hpp>
#include <ilme/evaluate/start_token.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/chat.hpp>
#include <ilme/text/tokenizer.hpp>

#include "evaluate/options.hpp"

namespace ilme::program {

/// The progress of one task: a bar on a terminal, else a line every so many items.
class TaskProgress {
 public:
  TaskProgress(std::string name, const char* items, std::int64_t log_every, double total, bool bytes = false)
      : name_(std::move(name)),
        items_(items),
        log_every_(log_every),
        bar_({.label = name_,
              .item_name = items,
              .unit = bytes ? ProgressUnit::bytes : ProgressUnit::items,
              .total = total}) {}

  /// `done` items; `amount` is what the bar counts (items, or bytes of the file).
  void update(std::int64_t done, double amount) {
    bar_.update(amount);
    if (!bar_.enabled() && log_every_ > 0 && done % log_every_ == 0) {
      std::fprintf(stderr, "task=%s %s=%lld seconds=%.1f\n", name_.c_str(), items_, static_cast<long long>(done),
                   seconds());
    }
  }
  void update(std::int64_t done) { update(done, static_cast<double>(done)); }

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string name_;
  const char* items_;
  std::int64_t log_every_;
  ProgressBar bar_;
};

/// Loads a model, scores every task and lets go of the model, so that a comparison needs the memory of one.
class ModelScorer {
 public:
  ModelScorer(const EvaluateOptions& options, const std::string& folder, const std::string& adapter)
      : options_(options),
        tokenizer_(text::Tokenizer::load(folder)),
        model_(lora::load_with_adapter<ops::Fused>(folder, adapter, hf::parse_dtype(options.dtype))),
        start_(evaluate::start_token(tokenizer_, model_->config())) {
    model_->eval();
    const nn::LlamaConfig& config = model_->config();
    const auto vocabulary = static_cast<std::int64_t>(tokenizer_.vocabulary_size());
    if (vocabulary > config.vocab_size) {
      throw InputError(folder, ": the tokenizer has ", vocabulary, " ids, the model only ", config.vocab_size,
                       "; ilme-model adapt moves a model to another tokenizer");
    }
    if (options.window > config.max_position_embeddings) {
      std::fprintf(stderr, "note: %s: the window of %lld tokens is longer than the %lld that the model is made for\n",
                   folder.c_str(), static_cast<long long>(options.window),
                   static_cast<long long>(config.max_position_embeddings));
    }
    scores_.folder = folder;
    scores_.adapter = adapter;
    scores_.start = std::string(tokenizer_.token_bytes(start_.id)) + " (" + start_.source + ")";
    scores_.tokenizer = tokenizer_.fingerprint();
    scores_.vocabulary = config.vocab_size;
    for (const at::Tensor& parameter : model_->parameters()) scores_.parameters += parameter.numel();
  }

  evaluate::ModelScores score(const EvaluateTasks& tasks) {
    const auto start = std::chrono::steady_clock::now();
    for (const evaluate::NamedFile& text : tasks.report.texts) score_text(text);
    for (const auto& task : tasks.report.choices) score_choices(task);
    for (std::size_t t = 0; t < tasks.prompts.size(); ++t) answer(tasks.report.prompts[t].name, tasks.prompts[t]);
    scores_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(scores_);
  }

 private:
  void score_text(const evaluate::NamedFile& text) {
    data::DocumentReader reader({text.file}, options_.field);
    const bool by_bytes = options_.limit == 0;  // how many documents a whole file has is not known before
    TaskProgress progress(text.name, "documents", options_.log_every,
                          static_cast<double>(by_bytes ? reader.bytes_total() : options_.limit), by_bytes);
    evaluate::TextScorer scorer(
        *model_, {.window = options_.window,
                  .stride = options_.stride,
                  .tokens_at_once = options_.tokens_at_once,
                  .progress = [&](std::int64_t documents) {
                    progress.update(documents, static_cast<double>(by_bytes ? reader.bytes_read() : documents));
                  }});
    for (std::int64_t i = 0; options_.limit == 0 || i < options_.limit; ++i) {
      const auto document = reader.next();
      if (!document) break;
      std::vector<text::TokenId> ids{start_.id};
      const auto tokens = tokenizer_.encode(*document);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      scorer.add(ids, static_cast<std::int64_t>(document->size()));
    }
    try {
      scorer.finish();
    } catch (const InputError& error) {
      throw InputError(text.file, ": ", error.what());
    }
    scores_.texts.push_back(scorer.documents());
  }

  void score_choices(const evaluate::Task<evaluate::ChoiceQuestion>& task) {
    TaskProgress progress(task.source.name, "questions", options_.log_every, static_cast<double>(task.items.size()));
    scores_.choices.push_back(evaluate::score_choices(*model_, tokenizer_, start_.id, task.items,
                                                      {.delimiter = options_.delimiter,
                                                       .window = options_.window,
                                                       .tokens_at_once = options_.tokens_at_once,
                                                       .progress = [&](std::int64_t done) { progress.update(done); }}));
    const auto& scores = scores_.choices.back();
    const auto shortened =
        std::count_if(scores.begin(), scores.end(), [](const auto& score) { return score.shortened; });
    if (shortened > 0) {
      std::fprintf(stderr, "note: %s: %lld questions lost their beginning, their prompts are longer than the window\n",
                   task.source.file.c_str(), static_cast<long long>(shortened));
    }
  }

  void answer(const std::string& name, const std::vector<evaluate::Prompt>& prompts) {
    generate::GenerateOptions generation{.sampling = options_.sampling, .max_tokens = options_.max_tokens};
    generation.stop_ids = model_->config().eos_token_ids;
    if (const auto eos = tokenizer_.eos_id()) generation.stop_ids.push_back(*eos);
    for (const auto format : {text::ChatFormat::llama3, text::ChatFormat::chatml}) {
      for (const text::TokenId id : text::stop_ids(tokenizer_, format)) generation.stop_ids.push_back(id);
    }
    TaskProgress progress(name, "prompts", options_.log_every, static_cast<double>(prompts.size()));
    scores_.answers.push_back(evaluate::answer_prompts(*model_, tokenizer_, start_.id, prompts, generation,
                                                       [&](std::int64_t done) { progress.update(done); }));
  }

  const EvaluateOptions& options_;
  text::Tokenizer tokenizer_;
  std::shared_ptr<lora::LoraLlama<ops::Fused>> model_;
  evaluate::StartToken start_;
  evaluate::ModelScores scores_;
};

}  // namespace ilme::program
