/// What tests share: a folder that goes away, and the reference data that may be absent.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <stdlib.h>

#include <ilme/core/error.hpp>

namespace ilme::test {

/// A fresh folder, removed with all it holds at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ilme-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw RunError("cannot create a temporary folder ", name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The names in a folder, sorted.
inline std::vector<std::string> listing(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A file or folder of the reference data beside the project (`../shared`, or ILME_SHARED_DIR); nothing when it is
/// absent: then the test says so with SKIP.
inline std::optional<std::filesystem::path> shared_path(const std::string& name) {
  const char* given = ::getenv("ILME_SHARED_DIR");
  const std::filesystem::path root = given != nullptr ? given : std::filesystem::path(ILME_SOURCE_DIR) / "../shared";
  std::filesystem::path path = root / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

}  // namespace ilme::test
