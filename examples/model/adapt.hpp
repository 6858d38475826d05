/// ilme-model adapt.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/core/json.hpp>
#include <ilme/core/progress.hpp>
#include <ilme/hf/adapt.hpp>

#include "support/model_output.hpp"

namespace ilme::program {

struct AdaptCommand : ModelOutput {
  hf::AdaptOptions options;
  std::string init = "mean", json;
};

inline Json report_json(const AdaptCommand& command, const hf::AdaptReport& report) {
  Json roles = Json::array();
  for (const auto& role : report.roles) {
    roles.push_back({{"token", role.token}, {"role", role.role}, {"from", role.from}});
  }
  const auto id = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(); };
  return {{"model", command.options.model.string()},
          {"tokenizer", command.options.tokenizer.string()},
          {"output", command.options.output.string()},
          {"init", command.init},
          {"seed", command.options.seed},
          {"rows_before", report.old_rows},
          {"rows", report.new_rows},
          {"copied", report.copied},
          {"by_role", report.by_role},
          {"averaged", report.averaged},
          {"pieces_per_averaged", report.pieces_per_averaged},
          {"fresh", report.fresh},
          {"fresh_special_tokens", report.fresh_tokens},
          {"padded", report.padded},
          {"tied", report.tied},
          {"roles", roles},
          {"bos_token_id", id(report.special.bos)},
          {"eos_token_id", report.special.eos},
          {"pad_token_id", id(report.special.pad)},
          {"notes", report.notes}};
}

inline void adapt(AdaptCommand command) {
  command.options.method = hf::parse_row_method(command.init);
  const hf::AdaptReport report = hf::adapt_model(command.options);
  const auto line = [&](const char* what, std::int64_t rows, const std::string& how) {
    std::printf("  %-10s %8lld  %s\n", what, static_cast<long long>(rows), how.c_str());
  };
  std::printf("%s: %lld rows of %lld in place of %lld, %s\n", command.options.output.c_str(),
              static_cast<long long>(report.new_rows), static_cast<long long>(report.hidden_size),
              static_cast<long long>(report.old_rows),
              report.tied ? "embedding and head tied" : "embedding and head apart");
  line("copied", report.copied, "the same bytes or the same special token");
  line("by role", report.by_role, "a special token that does the same work");
  line("averaged", report.averaged,
       concat("the mean of the old rows of ", detail::printed("%.1f%s", report.pieces_per_averaged, ""), " pieces"));
  line("new", report.fresh,
       command.init == "copy" ? "the mean of all old rows" : "drawn around the old rows' mean and covariance");
  line("padding", report.padded, "ids without a token, in suppress_tokens");
  for (const auto& role : report.roles) {
    std::printf("%s: %s from %s\n", role.role.c_str(), role.token.c_str(), role.from.c_str());
  }
  for (const std::string& token : report.fresh_tokens) std::printf("new special token: %s\n", token.c_str());
  for (const std::string& note : report.notes) std::printf("note: %s\n", note.c_str());
  if (!command.json.empty()) write_json(command.json, report_json(command, report));
}

inline void add_adapt_command(CLI::App& app) {
  auto command = std::make_shared<AdaptCommand>();
  CLI::App* sub = app.add_subcommand(
      "adapt",
      "Moves a model to another tokenizer: a new one or an extension of its own. Tokens that both have keep their rows "
      "of embedding and head; special tokens are matched by name, then by what they are for; every other token starts "
      "from the old tokens that its bytes were before. Config, generation config, chat template and tokenizer files "
      "follow. Nothing is trained: go on with ilme-pretrain.");
  hf::AdaptOptions& options = command->options;
  sub->add_option("--model", options.model, "Model folder with its tokenizer")->type_name("DIR")->required();
  sub->add_option("--tokenizer", options.tokenizer, "Folder of the new tokenizer")->type_name("DIR")->required();
  sub->add_option("--output", options.output, "Model folder to write; new or empty")->type_name("DIR")->required();
  sub->add_option("--init", command->init,
                  "Rows of tokens that the old vocabulary does not have: mean of the old rows of their pieces; normal, "
                  "drawn around the old rows' mean and covariance; copy, all at the mean of the old rows")
      ->check(CLI::IsMember({"mean", "normal", "copy"}));
  sub->add_option("--pad-to", options.pad_to,
                  "Pad the vocabulary to a multiple of so many rows (64 suits GPUs); padding is never sampled");
  sub->add_option("--model-tokenizer", options.old_tokenizer, "Folder of the model's tokenizer, if not in --model")
      ->type_name("DIR");
  sub->add_option("--seed", options.seed, "Seed of what is drawn");
  sub->add_option("--json", command->json, "Also write the report to this file")->type_name("FILE");
  command->add_to(*sub);
  sub->callback([command] {
    command->options.max_shard_size = command->max_shard_bytes();
    adapt(*command);
  });
}

}  // namespace ilme::program
