/// ilme-tokenizer: trains a byte-level BPE tokenizer, encodes and decodes with one, and compares several.
#include "support/program.hpp"
#include "tokenizer/codec.hpp"
#include "tokenizer/evaluate.hpp"
#include "tokenizer/train.hpp"

int main(int argc, char** argv) {
  return ilme::run_program(argc, argv, "ilme-tokenizer",
                           "Train a byte-level BPE tokenizer, encode and decode with it, compare tokenizers.",
                           [](CLI::App& app) -> std::function<void()> {
                             app.require_subcommand(1);
                             ilme::program::add_train_command(app);
                             ilme::program::add_codec_commands(app);
                             ilme::program::add_evaluate_command(app);
                             return {};
                           });
}
