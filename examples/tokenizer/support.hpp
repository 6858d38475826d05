/// What the commands of ilme-tokenizer share.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/memory_map.hpp>

namespace ilme::program {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The bytes of a file, or of standard input for "-".
class Input {
 public:
  explicit Input(const std::string& name) {
    if (name == "-") {
      text_.assign(std::istreambuf_iterator<char>(std::cin), {});
    } else {
      map_ = MemoryMap(name);
    }
  }
  std::string_view bytes() const { return text_.empty() ? map_.text() : std::string_view(text_); }

 private:
  std::string text_;
  MemoryMap map_;
};

/// To standard output for "-"; straight into a device or pipe; else a file that appears as a whole.
inline void write_output(const std::string& name, std::string_view bytes) {
  if (name == "-") {
    std::cout.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  } else if (std::filesystem::is_character_file(name) || std::filesystem::is_fifo(name)) {
    std::ofstream out(name, std::ios::binary);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) {
      throw RunError(name, ": cannot write ", bytes.size(), " bytes");
    }
  } else {
    write_file(name, bytes);
  }
}

inline bool is_binary(const std::string& name) { return name.ends_with(".bin"); }

inline CLI::App* add_command(CLI::App& app, const char* name, const char* description, std::function<void()> run) {
  CLI::App* command = app.add_subcommand(name, description);
  command->callback(std::move(run));
  return command;
}

inline void add_threads(CLI::App& command, std::size_t& threads) {
  command.add_option("--threads", threads, "Threads; 0: all that there are");
}

}  // namespace ilme::program
