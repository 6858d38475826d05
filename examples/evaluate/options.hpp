/// The options of ilme-evaluate, and the tasks that they name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/evaluate/choices.hpp>
#include <ilme/evaluate/prompts.hpp>
#include <ilme/evaluate/report.hpp>
#include <ilme/generate/sampling.hpp>
#include <ilme/text/number_text.hpp>

#include "support/named_paths.hpp"

namespace ilme::program {

struct EvaluateOptions {
  std::string model, adapter, baseline, baseline_adapter;
  std::vector<std::string> texts, choices, prompts;
  std::string field = "text", delimiter = " ", dtype = "fp32", json, html;
  std::int64_t window = 1024, stride = 512, limit = 0, tokens_at_once = 4096, max_tokens = 128, log_every = 100;
  generate::SamplingOptions sampling;

  void add_to(CLI::App& app) {
    app.add_option("--model", model, "Model folder")->type_name("DIR")->required();
    app.add_option("--adapter", adapter, "LoRA adapter folder (PEFT layout) to put on the model")->type_name("DIR");
    app.add_option("--baseline", baseline, "Model folder to compare with (before), with a tokenizer of its own")
        ->type_name("DIR");
    app.add_option("--baseline-adapter", baseline_adapter, "Adapter folder to put on the baseline")->type_name("DIR");
    app.add_option("--text", texts, "Texts for bits per byte: .txt (a document a line) or .jsonl, also .gz and .zst")
        ->type_name("[NAME=]FILE...");
    app.add_option("--choices", choices,
                   "Questions: .jsonl of {\"question\", \"choices\": [...], \"answer\": index from 0 or text, "
                   "\"context\": optional text before the question}")
        ->type_name("[NAME=]FILE...");
    app.add_option("--prompts", prompts,
                   "Prompts whose answers are searched for repetitions: a text to continue a line, or .jsonl of "
                   "{\"prompt\"} or {\"messages\"}")
        ->type_name("[NAME=]FILE...");
    app.add_option("--limit", limit, "Only the first N documents, questions and prompts of each file; 0: all")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--field", field, "Key of the text in .jsonl of --text");
    app.add_option("--window", window, "Tokens that the model sees at once");
    app.add_option("--stride", stride, "Tokens by which the window moves on in a longer document");
    app.add_option("--delimiter", delimiter, "Text between question and choice");
    app.add_option("--max-tokens", max_tokens, "Longest answer to a prompt, in tokens")->check(CLI::PositiveNumber);
    app.add_option("--temperature", sampling.temperature, "Of the answers; 0: always the most likely token");
    app.add_option("--top-p", sampling.top_p, "Sample from the likeliest tokens with this much probability");
    app.add_option("--top-k", sampling.top_k, "Sample from so many of the likeliest tokens; 0: all");
    app.add_option("--min-p", sampling.min_p, "Drop tokens less likely than this share of the likeliest");
    app.add_option("--repetition-penalty", sampling.repetition_penalty,
                   "Over 1: tokens that have occurred become less likely");
    app.add_option("--seed", sampling.seed, "Seed of the sampling");
    app.add_option("--dtype", dtype, "Compute in fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}));
    app.add_option("--tokens-at-once", tokens_at_once, "Tokens of a forward pass; fewer need less memory")
        ->check(CLI::PositiveNumber);
    app.add_option("--log-every", log_every,
                   "Documents, questions and prompts between two lines of progress where "
                   "there is no terminal; 0: none")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--json", json, "File for all figures and scores as JSON")->type_name("FILE");
    app.add_option("--html", html, "File for a page with charts; needs nothing else to show")->type_name("FILE");
  }
};

/// What is to be scored, read before a model is loaded so that a bad line is found at once.
struct EvaluateTasks {
  evaluate::Report report;
  std::vector<std::vector<evaluate::Prompt>> prompts;  // [task]
};

/// Calls `visit(reader, line)` for the first `limit` lines of a file (0: all).
template <class Visit>
void for_each_line(const std::string& file, std::int64_t limit, Visit&& visit) {
  const data::DocumentReader reader({file});
  data::LineReader lines(file);
  for (std::int64_t i = 0; limit == 0 || i < limit; ++i) {
    auto line = lines.next();
    if (!line) {
      if (i == 0) throw InputError(file, ": is empty");
      break;
    }
    visit(std::move(*line), lines.where());
  }
}

inline EvaluateTasks read_tasks(const EvaluateOptions& options) {
  if (options.texts.empty() && options.choices.empty() && options.prompts.empty()) {
    throw InputError("nothing to evaluate: --text, --choices or --prompts is required");
  }
  if (options.baseline.empty() && !options.baseline_adapter.empty()) {
    throw InputError("--baseline-adapter needs --baseline, the model that it goes on");
  }
  options.sampling.validate();
  EvaluateTasks tasks;
  for (NamedPath& text : named_paths("--text", options.texts, document_name)) {
    data::DocumentReader{{text.path}, options.field};  // refuses what cannot be opened
    tasks.report.texts.push_back({std::move(text.name), std::move(text.path)});
  }
  for (const NamedPath& file : named_paths("--choices", options.choices, document_name)) {
    evaluate::Task<evaluate::ChoiceQuestion> task{{file.name, file.path}, {}};
    for_each_line(file.path, options.limit, [&](const std::string& line, const std::string& where) {
      task.items.push_back(evaluate::read_choice_question(data::parse_json_line(line, where), where));
    });
    tasks.report.choices.push_back(std::move(task));
  }
  for (const NamedPath& file : named_paths("--prompts", options.prompts, document_name)) {
    const bool json = data::document_format(file.path) == data::DocumentFormat::json_lines;
    std::vector<evaluate::Prompt>& prompts = tasks.prompts.emplace_back();
    for_each_line(file.path, options.limit, [&](std::string line, const std::string& where) {
      prompts.push_back(json ? evaluate::read_prompt(data::parse_json_line(line, where), where)
                             : evaluate::Prompt{std::move(line), {}, where});
    });
    tasks.report.prompts.push_back({file.name, file.path});
  }
  std::vector<std::string>& settings = tasks.report.settings;
  settings.push_back("computed in " + options.dtype + "; windows of " + std::to_string(options.window) +
                     " tokens, stride " + std::to_string(options.stride) +
                     (options.limit == 0 ? "" : "; the first " + std::to_string(options.limit) + " of each file"));
  if (!options.prompts.empty()) {
    const generate::SamplingOptions& sampling = options.sampling;
    std::string how = "always the most likely token";
    if (sampling.temperature > 0) {
      how = "temperature " + text::fixed(sampling.temperature, 2) + ", top-k " + std::to_string(sampling.top_k) +
            ", top-p " + text::fixed(sampling.top_p, 2) + ", min-p " + text::fixed(sampling.min_p, 2) + ", seed " +
            std::to_string(sampling.seed);
    }
    if (sampling.repetition_penalty != 1) how += ", repetition penalty " + text::fixed(sampling.repetition_penalty, 2);
    settings.push_back("answers of up to " + std::to_string(options.max_tokens) + " tokens, " + how);
  }
  return tasks;
}

}  // namespace ilme::program
