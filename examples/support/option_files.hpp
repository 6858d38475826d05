/// Options from files: `--config file.json`, and the hyperparameters of a SageMaker job. They become arguments for what
/// the command line leaves out.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>

namespace ilme {

namespace detail {

/// The long names of a command's options, without dashes; --help, --version and --config only `with_common`.
inline std::vector<std::string> option_keys(const CLI::App& app, bool with_common = false) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& key : option->get_lnames()) {
      if (with_common || (key != "help" && key != "version" && key != "config")) keys.push_back(key);
    }
  }
  return keys;
}

/// What the command line says, before CLI11 reads it.
struct CommandLine {
  std::vector<std::string> words;
  std::vector<CLI::App*> commands;  // the program, then the command that was chosen, then its own, ...

  CommandLine(CLI::App& app, std::vector<std::string> given) : words(std::move(given)), commands{&app} {
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
      if (words[i] == "--config") {
        ++i;
      } else if (CLI::App* command = find_command(*commands.back(), words[i])) {
        commands.push_back(command);
      }
    }
  }

  static CLI::App* find_command(CLI::App& app, const std::string& name) {
    const auto found = app.get_subcommands([&](CLI::App* command) { return command->check_name(name); });
    return found.empty() ? nullptr : found.front();
  }

  bool mentions(const CLI::Option& option) const {
    for (const std::string& word : words) {
      if (word == "--") break;
      for (const std::string& name : option.get_lnames()) {
        if (word == "--" + name || word.starts_with("--" + name + "=")) return true;
      }
      for (const std::string& name : option.get_snames()) {
        if (word.starts_with("-" + name)) return true;
      }
    }
    return false;
  }

  /// The value of `--config`, if it is there.
  std::optional<std::string> config() const {
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
      if (words[i].starts_with("--config=")) return words[i].substr(9);
      if (words[i] == "--config" && i + 1 < words.size()) return words[i + 1];
    }
    return std::nullopt;
  }
};

/// Whether CLI11 names the option's type so; a check adds to the name, as in "INT:POSITIVE".
inline bool has_type(const CLI::Option& option, const std::string& type) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':')) == type;
}

/// A JSON value as the text that an option reads.
inline std::string option_text(const Json& value, const CLI::Option& option, const std::string& where) {
  if (value.is_object() || value.is_array()) {
    throw InputError(where, ": ", option.get_name(), ": expected a plain value, found ", short_dump(value));
  }
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (has_type(option, "INT") || has_type(option, "UINT")) {  // "007" is decimal here; CLI11 would read it as octal
    const std::size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
    while (text.size() > sign + 1 && text[sign] == '0' && std::isdigit(static_cast<unsigned char>(text[sign + 1]))) {
      text.erase(sign, 1);
    }
  }
  return text;
}

/// Arguments for the members of `values` that the command line leaves out. A member names an option of the chosen
/// command or of the program, with - or _; or it is the object of a command's own options. Null means not given.
inline void append_options(const CommandLine& line, std::vector<CLI::App*> commands, const Json& values,
                           const std::string& where, std::vector<CLI::Option*>& taken,
                           std::vector<std::string>& arguments) {
  if (!values.is_object()) throw InputError(where, ": expected a JSON object, found ", short_dump(values));
  for (const auto& [key, value] : values.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (CLI::App* command = CommandLine::find_command(*line.commands.front(), name);
        command != nullptr && value.is_object()) {
      std::vector<std::string> unused;
      const bool chosen = std::find(line.commands.begin(), line.commands.end(), command) != line.commands.end();
      append_options(line, {line.commands.front(), command}, value, where, taken, chosen ? arguments : unused);
      continue;
    }
    CLI::Option* option = nullptr;
    std::vector<std::string> known;
    for (CLI::App* command : commands) {
      const std::vector<std::string> names = option_keys(*command);
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        option = command->get_option_no_throw("--" + name);
      }
      known.insert(known.end(), names.begin(), names.end());
    }
    if (option == nullptr) {
      const std::string near = nearest_name(name, known);
      throw InputError(where, ": unknown key \"", key, "\"", near.empty() ? "" : "; did you mean \"" + near + "\"?");
    }
    const bool earlier = std::find(taken.begin(), taken.end(), option) != taken.end();
    if (value.is_null() || earlier || line.mentions(*option)) continue;
    taken.push_back(option);
    const bool flag = option->get_items_expected_max() == 0;
    const Json list = value.is_array() && !flag ? value : Json::array({value});
    for (const Json& item : list) {
      const std::string text = option_text(item, *option, where);
      if (flag) {
        arguments.push_back("--" + name + "=" + text);
      } else {
        arguments.insert(arguments.end(), {"--" + name, text});
      }
    }
  }
}

/// The folder of a SageMaker job's configuration.
inline std::filesystem::path job_config_folder() {
  const char* folder = std::getenv("SM_INPUT_CONFIG_DIR");
  return folder != nullptr ? folder : "/opt/ml/input/config";
}

/// The job's hyperparameters; nothing outside a job. SageMaker gives every value as a string, which its Python SDK has
/// encoded as JSON and other callers have not: what does not decode stands for itself. Its own settings
/// (`sagemaker_...`) are left out.
inline std::optional<Json> job_hyperparameters() {
  const std::filesystem::path file = job_config_folder() / "hyperparameters.json";
  std::error_code code;
  if (!std::filesystem::exists(file, code)) return std::nullopt;
  const Json raw = read_json(file);
  if (!raw.is_object()) throw InputError(file.string(), ": expected a JSON object, found ", short_dump(raw));
  Json values = Json::object();
  for (const auto& [key, value] : raw.items()) {
    if (key.starts_with("sagemaker_")) continue;
    Json decoded =
        value.is_string() ? Json::parse(value.get<std::string>(), nullptr, /*allow_exceptions=*/false) : value;
    values[key] = decoded.is_discarded() ? value : decoded;
  }
  return values;
}

/// Inside a SageMaker job, leaves the reason of a failure where the service shows it.
inline void write_job_failure(const std::string& reason) {
  std::error_code code;
  if (!std::filesystem::exists(job_config_folder() / "hyperparameters.json", code)) return;
  const char* given = std::getenv("SM_OUTPUT_DIR");
  const std::filesystem::path folder = given != nullptr ? given : "/opt/ml/output";
  std::filesystem::create_directories(folder, code);
  std::ofstream(folder / "failure") << reason << "\n";
}

}  // namespace detail

/// The words of the command line, and behind them arguments for what only a file says: the `--config` file first, then
/// the job's hyperparameters (which may name a config file too). Unknown keys are an InputError with the nearest name.
inline std::vector<std::string> with_option_files(CLI::App& app, std::vector<std::string> words) {
  const detail::CommandLine line(app, std::move(words));
  std::optional<Json> job = detail::job_hyperparameters();
  std::optional<std::string> config = line.config();
  if (job && job->contains("config")) {
    if (!config) config = job->at("config").get<std::string>();
    job->erase("config");
  }
  std::vector<CLI::Option*> taken;
  std::vector<std::string> added;
  if (config) detail::append_options(line, line.commands, read_json(*config), *config, taken, added);
  if (job) {
    const std::string where = (detail::job_config_folder() / "hyperparameters.json").string();
    detail::append_options(line, line.commands, *job, where, taken, added);
  }
  std::vector<std::string> arguments = line.words;
  arguments.insert(std::find(arguments.begin(), arguments.end(), "--"), added.begin(), added.end());
  return arguments;
}

}  // namespace ilme
