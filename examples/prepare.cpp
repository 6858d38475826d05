/// ilme-prepare: tokenises documents into memory-mapped shards for ilme-pretrain.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/data/prepare.hpp>
#include <ilme/text/tokenizer.hpp>

#include "support/program.hpp"

namespace {

struct Options {
  std::string tokenizer, json;
  ilme::data::PrepareOptions prepare;
};

/// "train documents=1200 tokens=340112 bytes=1220450 tokens_per_byte=0.2787 shards=1"
void print(const char* name, const ilme::data::ShardIndex& index) {
  const double bytes = static_cast<double>(index.source_bytes());
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.4f", bytes > 0 ? static_cast<double>(index.tokens()) / bytes : 0.0);
  std::cout << name << " documents=" << index.documents() << " tokens=" << index.tokens()
            << " bytes=" << index.source_bytes() << " tokens_per_byte=" << ratio << " shards=" << index.shards.size()
            << "\n";
}

/// bos_token_id of the model that the tokenizer lies beside; SmolLM2, for one, names its BOS nowhere else.
std::optional<ilme::text::TokenId> model_bos(const std::filesystem::path& folder, std::size_t vocabulary_size) {
  const auto path = folder / "config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const ilme::Json config = ilme::read_json(path);
  const auto id = config.is_object() ? config.find("bos_token_id") : config.end();
  if (id == config.end() || !id->is_number_unsigned() || id->get<std::uint64_t>() >= vocabulary_size) {
    return std::nullopt;
  }
  return id->get<ilme::text::TokenId>();
}

void run(Options& options) {
  const auto tokenizer = ilme::text::Tokenizer::load(options.tokenizer);
  options.prepare.bos_id = model_bos(options.tokenizer, tokenizer.vocabulary_size());
  ilme::ProgressBar bar({.label = "tokenizing", .unit = ilme::ProgressUnit::bytes});
  options.prepare.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.set_total(static_cast<double>(total));
    bar.update(static_cast<double>(done));
  };
  const ilme::data::PrepareReport report = ilme::data::prepare(tokenizer, options.prepare);
  bar.clear();
  if (report.up_to_date) std::cout << "up to date: made from the same inputs and options\n";
  if (report.resumed_documents > 0) std::cout << "resumed documents=" << report.resumed_documents << "\n";
  print("train", report.train);
  if (report.validation) print("validation", *report.validation);
  if (options.prepare.validation > 0 && !report.validation) {
    std::cerr << "ilme-prepare: warning: --validation " << options.prepare.validation << " of "
              << report.train.documents() << " documents held out none; no validation folder was written\n";
  }
  if (options.json.empty()) return;
  ilme::Json result = {{"up_to_date", report.up_to_date}, {"resumed_documents", report.resumed_documents}};
  const auto add = [&](const char* name, const ilme::data::ShardIndex& index) {
    result[name] = {{"documents", index.documents()},
                    {"tokens", index.tokens()},
                    {"bytes", index.source_bytes()},
                    {"shards", index.shards.size()}};
  };
  add("train", report.train);
  if (report.validation) add("validation", *report.validation);
  ilme::write_json(options.json, result);
}

}  // namespace

int main(int argc, char** argv) {
  return ilme::run_program(
      argc, argv, "ilme-prepare",
      "Tokenises documents into memory-mapped shards: BOS before and EOS after each, where the tokenizer has them (or "
      "config.json beside it names a bos_token_id).\n"
      "OUTPUT receives index.json and shard-NNNNN.{bin,idx}; what --validation holds out goes to OUTPUT/validation in "
      "the same form (ilme-pretrain --data OUTPUT --eval-data OUTPUT/validation). A run that was killed goes on when "
      "it "
      "is repeated; a finished one is not done again.",
      [](CLI::App& app) -> std::function<void()> {
        auto options = std::make_shared<Options>();
        auto& prepare = options->prepare;
        app.add_option("--tokenizer", options->tokenizer, "Tokenizer folder, tokenizer.json or tiktoken file")
            ->required()
            ->type_name("DIR");
        app.add_option("--input", prepare.inputs, "Documents: .txt (one a line) or .jsonl, also with .gz or .zst")
            ->required()
            ->type_name("FILE");
        app.add_option("--output", prepare.output, "Folder to write")->required()->type_name("DIR");
        app.add_option("--field", prepare.field,
                       "Key of a .jsonl line whose string is the document; \"messages\": conversations, which go "
                       "through the chat template");
        app.add_option("--validation", prepare.validation,
                       "Share of the documents to hold out, from 0 to 1, chosen by a hash of their text");
        app.add_option("--shard-tokens", prepare.shard_tokens, "Tokens after which a shard is closed")
            ->check(CLI::PositiveNumber);
        app.add_option("--threads", prepare.threads, "Threads; 0: all");
        app.add_flag("--overwrite", prepare.overwrite, "Replace an output that another tokenizer made");
        app.add_option("--json", options->json, "Also write the figures to this file")->type_name("FILE");
        return [options] { run(*options); };
      });
}
