/// A file for intermediate results that leaves nothing behind, however the process ends.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

namespace ilme {

/// A file without a name in `folder`: the system gives its room back when it is closed or the process is killed. Errors
/// (a full disk) are RunError that names the folder.
class ScratchFile {
 public:
  explicit ScratchFile(std::filesystem::path folder) : folder_(std::move(folder)) {
    fd_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {  // not every file system can do that
      std::string name = (folder_ / ".ilme-scratch-XXXXXX").string();
      fd_ = ::mkostemp(name.data(), O_CLOEXEC);
      if (fd_ >= 0) ::unlink(name.c_str());
    }
    if (fd_ < 0) throw RunError(folder_.string(), ": cannot create a scratch file: ", detail::errno_text());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { ::close(fd_); }

  std::uint64_t size() const noexcept { return size_; }

  /// Appends.
  void write(const char* data, std::size_t size) {
    while (size > 0) {
      const ssize_t written = ::write(fd_, data, std::min<std::size_t>(size, std::size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        throw RunError(folder_.string(), ": cannot write a scratch file of ", size_ + size,
                       " bytes: ", detail::errno_text());
      }
      data += written;
      size -= static_cast<std::size_t>(written);
      size_ += static_cast<std::uint64_t>(written);
    }
  }

  /// Reads `size` bytes at `offset`, which are there.
  void read(char* out, std::size_t size, std::uint64_t offset) const {
    while (size > 0) {
      const ssize_t count = ::pread(fd_, out, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        throw RunError(folder_.string(), ": cannot read a scratch file: ",
                       count < 0 ? detail::errno_text() : std::string("it is shorter than it was"));
      }
      out += count;
      size -= static_cast<std::size_t>(count);
      offset += static_cast<std::uint64_t>(count);
    }
  }

 private:
  std::filesystem::path folder_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace ilme
