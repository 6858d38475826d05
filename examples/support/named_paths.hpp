/// Arguments of the form NAME=PATH.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>

namespace ilme::program {

struct NamedPath {
  std::string name, path;
};

/// The last part of a path, a trailing slash aside.
inline std::string last_part(const std::filesystem::path& path) {
  return (path / "").lexically_normal().parent_path().filename().string();
}

/// The name of a file of documents, without folder and endings.
inline std::string document_name(const std::filesystem::path& path) {
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  return name.stem().string();
}

/// The arguments of `option` taken apart; `default_name(path)` names those without a name. InputError for an empty part
/// and for a name that is used twice.
inline std::vector<NamedPath> named_paths(
    const std::string& option, const std::vector<std::string>& arguments,
    const std::function<std::string(const std::filesystem::path&)>& default_name) {
  std::vector<NamedPath> named;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    std::string path = equals == std::string::npos ? argument : argument.substr(equals + 1);
    std::string name = equals == std::string::npos ? default_name(path) : argument.substr(0, equals);
    if (name.empty() || path.empty()) throw InputError(option, " ", argument, ": expected NAME=PATH");
    for (const NamedPath& other : named) {
      if (name == other.name) {
        throw InputError(option, " ", argument, ": ", other.path, " is called ", name,
                         " too; give them different names with NAME=PATH");
      }
    }
    named.push_back({std::move(name), std::move(path)});
  }
  return named;
}

}  // namespace ilme::program
