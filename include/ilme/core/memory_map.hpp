/// A file mapped read-only into memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

namespace ilme {

/// Read-only mapping of a whole file; pages are read when touched and shared with other processes. Move-only.
class MemoryMap {
 public:
  MemoryMap() = default;
  /// Throws InputError when the file is missing, unreadable or not a regular file. An empty file maps to no bytes.
  explicit MemoryMap(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw InputError(path.string(), ": cannot open: ", detail::errno_text());
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      throw InputError(path.string(), ": not a regular file");
    }
    size_ = static_cast<std::size_t>(info.st_size);
    if (size_ > 0) {
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data_ == MAP_FAILED) {
        const std::string reason = detail::errno_text();
        data_ = nullptr;
        ::close(fd);
        throw RunError(path.string(), ": cannot map ", size_, " bytes: ", reason);
      }
    }
    ::close(fd);
  }
  MemoryMap(MemoryMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MemoryMap& operator=(MemoryMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MemoryMap() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const noexcept { return {static_cast<const char*>(data_), size_}; }
  std::size_t size() const noexcept { return size_; }

  /// Takes the pages of bytes [begin, begin + size) out of this process's memory. They are read again when touched.
  void release(std::size_t begin, std::size_t size) const noexcept {
    if (data_ == nullptr || begin >= size_) return;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = begin / page * page;
    ::madvise(static_cast<std::byte*>(data_) + first, std::min(begin + size, size_) - first, MADV_DONTNEED);
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ilme
