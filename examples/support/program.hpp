/// The frame that every program shares: options from the command line, a JSON file or a SageMaker job, help that shows
/// defaults, and errors as one line with exit code 2 (bad usage or input) or 1 (a failure while running).
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/version.hpp>

#include "support/help_format.hpp"
#include "support/option_files.hpp"

namespace ilme {

namespace detail {

/// Descriptors 0, 1 and 2 are taken, so that no file opened later can receive what is printed.
inline void occupy_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", O_RDWR) == -1) std::_Exit(1);
  }
}

/// Flushes what was printed. A reader that went away (`| head`) is no error; a full disk is.
inline void finish_standard_output() {
  const bool failed = !std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return;
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0) return;
  throw RunError("standard output: cannot write what was printed");
}

/// In one line what is wrong with the command line; a mistyped option or command gets the nearest known one.
inline std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<const CLI::App*> chain{&app};
  while (!chain.back()->get_subcommands().empty()) chain.push_back(chain.back()->get_subcommands().front());
  for (const std::string& word : app.remaining(true)) {
    const bool option = word.size() > 1 && word[0] == '-';
    const std::string name = option ? word.substr(0, word.find('=')) : word;
    std::vector<std::string> known;
    for (const CLI::App* level : chain) {
      if (option) {
        for (const std::string& key : option_keys(*level, /*with_common=*/true)) known.push_back("--" + key);
      }
    }
    if (!option) {
      for (const CLI::App* command : chain.back()->get_subcommands([](const CLI::App*) { return true; })) {
        known.push_back(command->get_name());
      }
    }
    const std::string near = nearest_name(name, known);
    const std::string kind = option ? "unknown option " : known.empty() ? "unexpected argument " : "unknown command ";
    return kind + name + (near.empty() ? "; see --help" : "; did you mean " + near + "?");
  }
  return error.what();
}

/// CLI11 reads "nan" as a number; no option means it.
inline void refuse_not_finite(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!has_type(*option, "FLOAT")) continue;
    for (const std::string& value : option->results()) {
      if (!std::isfinite(std::strtod(value.c_str(), nullptr))) {
        throw InputError(option->get_name(), ": expected a finite number, found ", value);
      }
    }
  }
  for (const CLI::App* command : app.get_subcommands()) refuse_not_finite(*command);
}

inline int report_error(const std::string& program, std::string what, int exit_code) {
  what.resize(std::min(what.find('\n'), what.size()));  // torch adds a backtrace below the first line
  std::cout.flush();
  std::cerr << program << ": error: " << what << std::endl;
  write_job_failure(program + ": " + what);
  return exit_code;
}

}  // namespace detail

/// Runs a program and returns its exit code. `setup(app)` declares options (and commands, with `add_subcommand`) and
/// returns what to do once they are read; it may return an empty function when the commands have callbacks.
///
///     int main(int argc, char** argv) {
///       return ilme::run_program(argc, argv, "ilme-x", "Does x.", [](CLI::App& app) -> std::function<void()> {
///         auto options = std::make_shared<Options>();
///         app.add_option("--steps", options->steps, "Optimizer steps");
///         return [options] { ... };
///       });
///     }
///
/// Added to every program: --help, --version, --config. Options left out on the command line are taken from the
/// --config file, then from a SageMaker job's hyperparameters. Put units in the descriptions and leave the type names
/// of numbers as they are: help shows them as N and X, and they say which values must be finite.
template <class Setup>
int run_program(int argc, char** argv, const std::string& name, const std::string& description, Setup&& setup) {
  detail::occupy_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then a write error, which names the file
  CLI::App app(description, name);
  try {
    app.fallthrough();
    app.formatter(std::make_shared<HelpFormat>());
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.set_version_flag("--version", name + " " + ILME_VERSION, "Print the version and exit");
    std::string config_file;
    app.add_option("--config", config_file, "JSON file of options, as {\"batch-size\": 8}; the command line wins")
        ->type_name("FILE");
    const std::function<void()> run = setup(app);
    try {
      std::vector<std::string> arguments = with_option_files(app, {argv + std::min(argc, 1), argv + argc});
      std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
      app.parse(std::move(arguments));
    } catch (const CLI::Success& success) {  // --help, --version
      const int code = app.exit(success);
      detail::finish_standard_output();
      return code;
    } catch (const CLI::ParseError& error) {
      throw InputError(detail::usage_error(app, error));
    }
    detail::refuse_not_finite(app);
    if (run) run();
    detail::finish_standard_output();
    return 0;
  } catch (const Error& error) {
    return detail::report_error(name, error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return detail::report_error(name, "out of memory", 1);
  } catch (const std::exception& error) {
    return detail::report_error(name, error.what(), 1);
  }
}

}  // namespace ilme
