/// Reading whole files, and writing files and folders so that a reader sees the old content or the new, never a part.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

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

/// A name beside `path` for what is not finished yet; hidden, and unique to this process.
inline std::filesystem::path unfinished_name(const std::filesystem::path& path) {
  return parent_folder(path) / concat(".", path.filename().string(), ".unfinished-", ::getpid());
}

inline void create_folders(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) throw RunError(folder.string(), ": cannot create the folder: ", code.message());
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
      old += "-old";
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
