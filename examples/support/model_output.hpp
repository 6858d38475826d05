/// What every program that writes a model folder offers.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/memory_size.hpp>

namespace ilme {

struct ModelOutput {
  std::string max_shard_size = "5GB";

  /// A bad size is refused with the other options, before any work.
  void add_to(CLI::App& app) {
    app.add_option("--max-shard-size", max_shard_size, "Largest weight file of a model that is written, as 5GB or 2GiB")
        ->type_name("SIZE")
        ->check([](const std::string& text) -> std::string {
          try {
            return parse_memory_size(text, "size") > 0 ? "" : "expected a size above 0";
          } catch (const InputError& error) {
            return error.what();
          }
        });
  }

  std::uint64_t max_shard_bytes() const { return parse_memory_size(max_shard_size, "--max-shard-size"); }
};

}  // namespace ilme
