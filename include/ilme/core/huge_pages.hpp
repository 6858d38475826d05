/// Memory in huge pages: for large tables that are visited at random, and for large copies.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <ilme/core/error.hpp>

namespace ilme {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Asks for huge pages in the whole ones that lie in memory from `begin` on: to write to fresh memory then costs one
/// page fault for 2 MiB instead of 512. Where the system has none, or was told not to, nothing happens.
inline void advise_huge_pages(void* begin, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (address + bytes) / kHugePage * kHugePage;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

/// Fresh memory of its own, in huge pages where there are some, that goes back to the system with the last pointer to
/// it, whatever malloc keeps. Throws RunError when the system has none left to give.
inline std::shared_ptr<std::byte> map_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw RunError("the system has no ", bytes, " bytes of memory left");
  advise_huge_pages(memory, bytes);
  return {static_cast<std::byte*>(memory), [bytes](std::byte* begin) { ::munmap(begin, bytes); }};
}

/// An allocator that asks for huge pages where there is room for some: a table of 16 MiB then needs 8 entries of the
/// processor's page cache instead of 4,096.
template <class T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    const std::size_t bytes = count * sizeof(T);
    void* const memory = ::operator new(bytes, alignment(bytes));
    advise_huge_pages(memory, bytes);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept { ::operator delete(memory, alignment(count * sizeof(T))); }

  template <class U>
  friend bool operator==(const HugePageAllocator&, const HugePageAllocator<U>&) noexcept {
    return true;
  }

 private:
  static constexpr std::align_val_t alignment(std::size_t bytes) {
    return std::align_val_t{bytes >= kHugePage ? kHugePage : std::size_t{64}};
  }
};

}  // namespace ilme
