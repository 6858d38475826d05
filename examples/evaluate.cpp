// ilme-evaluate: held-out text, multiple choice and repetition of one model, or of two to compare.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include <ilme/core/allocator.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/evaluate/measures.hpp>
#include <ilme/evaluate/report_html.hpp>
#include <ilme/evaluate/report_json.hpp>
#include <ilme/evaluate/report_table.hpp>

#include "evaluate/options.hpp"
#include "evaluate/score.hpp"
#include "support/program.hpp"

namespace {

using namespace ilme;

void run(const program::EvaluateOptions& options) {
  program::EvaluateTasks tasks = program::read_tasks(options);
  evaluate::Report& report = tasks.report;
  if (!options.baseline.empty()) {
    report.models.push_back(program::ModelScorer(options, options.baseline, options.baseline_adapter).score(tasks));
  }
  report.models.push_back(program::ModelScorer(options, options.model, options.adapter).score(tasks));
  const std::vector<evaluate::TaskFigures> figures = evaluate::figures(report);
  std::fputs(evaluate::report_table(report, figures).c_str(), stdout);
  if (!options.json.empty()) write_json(options.json, evaluate::report_json(report, figures));
  if (!options.html.empty()) write_file(options.html, evaluate::report_html(report, figures));
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(
      argc, argv, "ilme-evaluate",
      "Scores a model: bits per byte and perplexity of held-out text, multiple choice by log-likelihood, repetition of "
      "its answers. With --baseline it scores two models, one after the other, and says what has become better and "
      "worse.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<program::EvaluateOptions>();
        options->add_to(app);
        app.footer(
            "Bits per byte: every token of a document given BOS (the tokenizer's, else config.json's bos_token_id, "
            "else "
            "EOS) and what precedes it in the window, EOS not counted; comparable between tokenizers, which perplexity "
            "is not. The --html page explains the other measures with their sources.\n\n"
            "Example:\n"
            "  ilme-evaluate --baseline Llama-3.2-1B --model cpt --text az=az_heldout.txt en=en_heldout.txt \\\n"
            "    --choices questions.jsonl --prompts prompts.txt --html comparison.html");
        return [options] { run(*options); };
      });
}
