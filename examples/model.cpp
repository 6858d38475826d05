/// ilme-model: makes, moves, merges, converts and describes model folders.
#include <functional>

#include <ilme/core/allocator.hpp>

#include "model/adapt.hpp"
#include "model/convert.hpp"
#include "model/init.hpp"
#include "model/inspect.hpp"
#include "model/merge.hpp"
#include "support/program.hpp"

int main(int argc, char** argv) {
  ilme::reuse_large_allocations();
  return ilme::run_program(argc, argv, "ilme-model",
                           "Makes, moves, merges, converts and describes model folders in Hugging Face's layout.",
                           [](CLI::App& app) -> std::function<void()> {
                             app.require_subcommand(1);
                             ilme::program::add_init_command(app);
                             ilme::program::add_adapt_command(app);
                             ilme::program::add_merge_command(app);
                             ilme::program::add_convert_command(app);
                             ilme::program::add_inspect_command(app);
                             return {};
                           });
}
