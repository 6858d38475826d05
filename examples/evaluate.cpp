// ilme-evaluate: bits per byte and perplexity of held-out text.
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <ilme/core/allocator.hpp>
#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/documents.hpp>
#include <ilme/evaluate/bits_per_byte.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/lora/adapters.hpp>
#include <ilme/nn/llama.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"

namespace {

struct Options {
  std::string model, adapter, dtype = "fp32", json, field = "text";
  std::vector<std::string> texts;
  std::int64_t window = 1024, stride = 512;
};

void evaluate(const Options& options) {
  using namespace ilme;
  const text::Tokenizer tokenizer = text::Tokenizer::load(options.model);
  auto model = lora::load_with_adapter<ops::Fused>(options.model, options.adapter, hf::parse_dtype(options.dtype));
  model->eval();
  Json report = Json::array();
  std::cout << std::left << std::setw(40) << "text" << std::right << std::setw(10) << "documents" << std::setw(12)
            << "bytes" << std::setw(12) << "tokens" << std::setw(14) << "bits/byte" << std::setw(14) << "perplexity"
            << "\n";
  for (const std::string& file : options.texts) {
    data::DocumentReader reader({file}, options.field);
    ProgressBar bar(
        {.label = "scoring", .unit = ProgressUnit::bytes, .total = static_cast<double>(reader.bytes_total())});
    evaluate::TextScorer scorer(*model,
                                {.window = options.window, .stride = options.stride, .progress = [&](std::int64_t) {
                                   bar.update(static_cast<double>(reader.bytes_read()));
                                 }});
    while (const auto document = reader.next()) {
      std::vector<text::TokenId> ids;
      if (const auto bos = tokenizer.bos_id()) ids.push_back(*bos);
      const auto tokens = tokenizer.encode(*document);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      scorer.add(ids, static_cast<std::int64_t>(document->size()));
    }
    const evaluate::TextScore score = scorer.finish();
    bar.clear();
    std::cout << std::left << std::setw(40) << std::filesystem::path(file).filename().string() << std::right
              << std::setw(10) << score.documents << std::setw(12) << score.bytes << std::setw(12) << score.tokens
              << std::setw(14) << std::fixed << std::setprecision(4) << score.bits_per_byte() << std::setw(14)
              << std::setprecision(2) << score.perplexity() << "\n";
    report.push_back({{"text", file},
                      {"documents", score.documents},
                      {"bytes", score.bytes},
                      {"tokens", score.tokens},
                      {"bits_per_byte", score.bits_per_byte()},
                      {"perplexity", score.perplexity()},
                      {"window", options.window},
                      {"stride", options.stride}});
  }
  std::cout << "window " << options.window << " tokens, stride " << options.stride << "\n";
  if (!options.json.empty()) write_json(options.json, {{"model", options.model}, {"texts", report}});
}

}  // namespace

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(
      argc, argv, "ilme-evaluate",
      "Bits per byte and perplexity of held-out text: every token of a document given BOS and what precedes it in the "
      "window. Bits per byte compare models with different tokenizers, perplexity does not.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        app.add_option("--model", options->model, "Model folder")->type_name("DIR")->required();
        app.add_option("--adapter", options->adapter, "LoRA adapter folder (PEFT layout) to put on the model")
            ->type_name("DIR");
        app.add_option("--text", options->texts, "Text files: .txt (a document a line) or .jsonl, also .gz and .zst")
            ->type_name("FILE...")
            ->required();
        app.add_option("--field", options->field, "Key of the text in .jsonl");
        app.add_option("--window", options->window, "Tokens that the model sees at once");
        app.add_option("--stride", options->stride, "Tokens by which the window moves on in a longer document");
        app.add_option("--dtype", options->dtype, "Compute in fp32 or bf16")->check(CLI::IsMember({"fp32", "bf16"}));
        app.add_option("--json", options->json, "Also write the figures to this file")->type_name("FILE");
        return [options] { evaluate(*options); };
      });
}
