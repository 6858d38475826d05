/// A large array of plain values that grows without holding the old and the new one at once.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace ilme {

/// As std::vector for trivial types, but new elements are not set to anything, and growing a large array moves pages
/// instead of bytes (realloc does so on Linux).
template <class T>
class ResizableArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  ResizableArray() = default;
  ResizableArray(ResizableArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  ResizableArray& operator=(ResizableArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~ResizableArray() { std::free(data_); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t capacity() const noexcept { return capacity_; }
  T& operator[](std::size_t i) noexcept { return data_[i]; }
  const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }

  /// Makes the room exactly `capacity` when it is less. Throws std::bad_alloc.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    if (capacity > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    void* const grown = std::realloc(data_, capacity * sizeof(T));
    if (grown == nullptr) throw std::bad_alloc();
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
  }
  void resize(std::size_t size) {
    if (size > capacity_) reserve(size + size / 2);
    size_ = size;
  }
  void push_back(T value) {
    resize(size_ + 1);
    data_[size_ - 1] = value;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace ilme
