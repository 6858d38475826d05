// A program with every kind of option; prints what it read.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace {

struct Options {
  std::int64_t epochs = 1, warmup = 5, max_steps = 10, big = 0, seed = 1;
  std::optional<std::int64_t> text_number;
  double learning_rate = 1e-3, nan = 0;
  bool use_bf16 = false, use_lora = false;
  std::string run_name = "none", run_name_json, empty = "full", fail;
  std::filesystem::path path;
  std::vector<std::string> target_modules, target_modules_plain;
  std::int64_t repeat = 0;
};

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "|") + part;
  return text;
}

void print(const Options& o) {
  if (o.fail == "input") throw ilme::InputError("file.txt: bad input");
  if (o.fail == "run") throw ilme::RunError("disk is full");
  if (o.fail == "other") throw std::runtime_error("first line\nsecond line");
  if (o.fail == "memory") throw std::bad_alloc();
  for (std::int64_t i = 0; i < o.repeat; ++i) std::cout << "line " << i << "\n";
  std::cout << "epochs=" << o.epochs << " warmup=" << o.warmup << " max_steps=" << o.max_steps << " big=" << o.big
            << " seed=" << o.seed << " text_number=" << o.text_number.value_or(-1)
            << " learning_rate=" << o.learning_rate << " use_bf16=" << o.use_bf16 << " use_lora=" << o.use_lora
            << " run_name=" << o.run_name << " run_name_json=" << o.run_name_json << " empty=[" << o.empty
            << "] path=" << o.path.string() << " modules=" << joined(o.target_modules)
            << " plain=" << joined(o.target_modules_plain) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  return ilme::run_program(
      argc, argv, "ilme-sample", "Prints its options.", [](CLI::App& app) -> std::function<void()> {
        auto o = std::make_shared<Options>();
        app.require_subcommand(1);
        CLI::App* show = app.add_subcommand("show", "Print the options");
        show->add_option("--epochs,-e", o->epochs, "Passes over the data");
        show->add_option("--warmup", o->warmup, "Steps of warm-up");
        show->add_option("--max-steps", o->max_steps, "Steps at most");
        show->add_option("--big", o->big, "A number that a double cannot hold");
        show->add_option("--seed", o->seed,
                         "Seed of every random choice; the description of this one is long enough to wrap");
        show->add_option("--text-number", o->text_number, "Optional");
        show->add_option("--learning-rate", o->learning_rate, "Peak learning rate");
        show->add_option("--nan", o->nan, "Any finite number");
        show->add_flag("--use-bf16", o->use_bf16, "A flag");
        show->add_option("--use-lora", o->use_lora, "A boolean");
        show->add_option("--run-name", o->run_name, "Name of the run");
        show->add_option("--run-name-json", o->run_name_json, "Name of the run");
        show->add_option("--empty", o->empty, "Anything");
        show->add_option("--path", o->path, "A file");
        show->add_option("--target-modules", o->target_modules, "Names")->delimiter(',');
        show->add_option("--target-modules-plain", o->target_modules_plain, "Names")->delimiter(',');
        show->add_option("--fail", o->fail, "Throws")->check(CLI::IsMember({"input", "run", "other", "memory"}));
        show->add_option("--repeat", o->repeat, "Lines to print");
        CLI::App* other = app.add_subcommand("other", "Needs a file");
        other->add_option("--output", o->path, "A file")->required();
        return [o] { print(*o); };
      });
}
