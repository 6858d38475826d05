/// Reading whole files, and writing files and folders so that a reader sees the old content or the new, never a part.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>

namespace ilme {

namespace detail {

inline std::string errno_text() { return std::error_code(errno, std::generic_category()).message(); }

/// Flushes a file or a folder to the disk. A file system that cannot do it for folders (EINVAL) is not an error.
inline void sync_path(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw RunError(path.string(), ": cannot open to flush: ", errno_text());
  const bool failed = ::fsync(fd) != 0 && errno != EINVAL;
  const std::string reason = failed ? errno_text() : "";
  ::close(fd);
  if (failed) throw RunError(path.string(), ": cannot flush to disk: ", reason);
}

inline std::filesystem::path parent_folder(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

inline constexpr std::string_view kUnfinished = ".unfinished-";
inline constexpr std::string_view kReplaced = "-old";  ///< ends the name of a folder while another takes its place

/// A name beside `path` for what is not finished yet; hidden, and unique to this process.
inline std::filesystem::path unfinished_name(const std::filesystem::path& path) {
  return parent_folder(path) / concat(".", path.filename().string(), kUnfinished, ::getpid());
}

/// What processes that are gone, or this one, left unfinished in `folder` of names that start with `prefix`.
inline std::vector<std::filesystem::path> unfinished_in(const std::filesystem::path& folder,
                                                        const std::string& prefix) {
  std::error_code code;
  std::vector<std::filesystem::path> leftovers;
  for (std::filesystem::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    const auto mark = name.find(kUnfinished);
    if (mark == std::string::npos || !name.starts_with("." + prefix)) continue;
    pid_t owner = 0;
    std::from_chars(name.data() + mark + kUnfinished.size(), name.data() + name.size(), owner);
    const bool alive = owner > 0 && (::kill(owner, 0) == 0 || errno == EPERM);
    if (!alive || owner == ::getpid()) leftovers.push_back(it->path());
  }
  return leftovers;
}

/// Puts back folders whose process died between the two moves of AtomicDirectory::commit.
inline void put_back_replaced(const std::filesystem::path& folder, const std::string& prefix) {
  for (const auto& leftover : unfinished_in(folder, prefix)) {
    const std::string name = leftover.filename().string();
    if (!name.ends_with(kReplaced)) continue;
    std::error_code code;
    const auto place = folder / name.substr(1, name.find(kUnfinished) - 1);
    if (!std::filesystem::exists(place, code)) std::filesystem::rename(leftover, place, code);
  }
}

/// Removes all that is unfinished.
inline void remove_unfinished(const std::filesystem::path& folder, const std::string& prefix) {
  put_back_replaced(folder, prefix);
  std::error_code code;
  for (const auto& leftover : unfinished_in(folder, prefix)) std::filesystem::remove_all(leftover, code);
}

/// Creates a folder and those above it, so that they are on the disk.
inline void create_folders(const std::filesystem::path& folder) {
  std::error_code code;
  const auto clean = folder.has_filename() ? folder : parent_folder(folder);
  if (std::filesystem::is_directory(clean, code)) return;
  const auto parent = parent_folder(clean);
  if (parent != clean) create_folders(parent);
  std::filesystem::create_directory(clean, code);
  if (code) throw RunError(folder.string(), ": cannot create the folder: ", code.message());
  sync_path(parent);
}

}  // namespace detail

/// The bytes of a regular file. Throws InputError when it is missing, unreadable or a folder.
inline std::string read_file(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) throw InputError(path.string(), ": is a folder, expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(path.string(), ": cannot open: ", detail::errno_text());
  std::string bytes;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) bytes.append(buffer, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) throw RunError(path.string(), ": read failed: ", detail::errno_text());
  return bytes;
}

/// Writes a file under a temporary name; `commit()` flushes it to disk and renames it to `path`. Without a commit (an
/// exception, say) nothing is left behind and an older file under that name stays. Errors (a full disk) are RunError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)), unfinished_(detail::unfinished_name(path_)) {
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored)) {
      throw InputError(path_.string(), ": is a folder, device or pipe, expected the name of a file");
    }
    detail::create_folders(detail::parent_folder(path_));
    fd_ = ::open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) throw RunError(path_.string(), ": cannot create: ", detail::errno_text());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!committed_) ::unlink(unfinished_.c_str());
  }

  void write(const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, bytes, std::min<std::size_t>(size, std::size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw RunError(path_.string(), ": cannot write: ", detail::errno_text());
      bytes += written;
      size -= static_cast<std::size_t>(written);
      size_ += static_cast<std::size_t>(written);
    }
  }
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }

  /// Bytes written so far.
  std::size_t size() const noexcept { return size_; }

  void commit() {
    if (::fsync(fd_) != 0) throw RunError(path_.string(), ": cannot flush to disk: ", detail::errno_text());
    if (::close(std::exchange(fd_, -1)) != 0) {
      throw RunError(path_.string(), ": cannot close: ", detail::errno_text());
    }
    if (::rename(unfinished_.c_str(), path_.c_str()) != 0) {
      throw RunError(path_.string(), ": cannot rename into place: ", detail::errno_text());
    }
    committed_ = true;
    detail::sync_path(detail::parent_folder(path_));
  }

 private:
  std::filesystem::path path_, unfinished_;
  int fd_ = -1;
  std::size_t size_ = 0;
  bool committed_ = false;
};

/// Writes `bytes` to `path` as AtomicFile does.
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

/// A folder that appears as a whole: fill `path()`, then `commit()` flushes every file and renames the folder to its
/// final name. An older folder under that name is replaced, and goes only when the new one is in place.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(std::filesystem::path target)
      : target_(std::move(target)), unfinished_(detail::unfinished_name(normal(target_))) {
    target_ = normal(target_);
    std::error_code ignored;
    std::filesystem::remove_all(unfinished_, ignored);
    detail::create_folders(unfinished_);
  }
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(unfinished_, ignored);
  }

  /// Where to write the content.
  const std::filesystem::path& path() const noexcept { return unfinished_; }

  void commit() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(unfinished_))
      detail::sync_path(entry.path());
    detail::sync_path(unfinished_);
    std::error_code code;
    std::filesystem::path old;
    if (std::filesystem::exists(target_, code)) {
      // Swapped in one move where the file system can; the destructor then removes the old one.
      if (::renameat2(AT_FDCWD, unfinished_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
        return detail::sync_path(detail::parent_folder(target_));
      }
      old = unfinished_;
      old += detail::kReplaced;
      std::filesystem::rename(target_, old, code);
      if (code) throw RunError(target_.string(), ": cannot replace: ", code.message());
    }
    std::filesystem::rename(unfinished_, target_, code);
    if (code) {
      std::error_code ignored;
      if (!old.empty()) std::filesystem::rename(old, target_, ignored);
      throw RunError(target_.string(), ": cannot rename into place: ", code.message());
    }
    detail::sync_path(detail::parent_folder(target_));
    if (!old.empty()) std::filesystem::remove_all(old, code);
  }

 private:
  /// Without a trailing slash, so that there is a file name to rename to.
  static std::filesystem::path normal(const std::filesystem::path& path) {
    std::filesystem::path clean = path.lexically_normal();
    return clean.has_filename() ? clean : clean.parent_path();
  }

  std::filesystem::path target_, unfinished_;
};

}  // namespace ilme
