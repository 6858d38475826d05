/// ilme-tokenizer: trains and extends byte-level BPE tokenizers, encodes and decodes with them, and compares several.
#include "support/program.hpp"
#include "tokenizer/codec.hpp"
#include "tokenizer/evaluate.hpp"
#include "tokenizer/extend.hpp"
#include "tokenizer/train.hpp"

int main(int argc, char** argv) {
  return ilme::run_program(argc, argv, "ilme-tokenizer",
                           "Train and extend byte-level BPE tokenizers, encode and decode with them, compare them.",
                           [](CLI::App& app) -> std::function<void()> {
                             app.require_subcommand(1);
                             ilme::program::add_train_command(app);
                             ilme::program::add_extend_command(app);
                             ilme::program::add_codec_commands(app);
                             ilme::program::add_evaluate_command(app);
                             return {};
                           });
}
