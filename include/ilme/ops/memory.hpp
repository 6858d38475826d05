/// The memory that tensors hold, and its peak over a phase of a program.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace ilme::ops {

namespace detail {

/// Stands before the allocator of CPU tensors and counts what it gives out and takes back, on all threads. Costs some
/// ten nanoseconds a tensor.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static CountingAllocator& allocator = *new CountingAllocator;  // tensors may outlive every static object
    return allocator;
  }

  c10::DataPtr allocate(std::size_t size) override {
    c10::DataPtr pointer = inner_->allocate(size);
    if (pointer.get_context() != pointer.get() || pointer.get_deleter() != inner_deleter_) return pointer;
    if (pointer.get() != nullptr) {
      const std::int64_t bytes = static_cast<std::int64_t>(::malloc_usable_size(pointer.get()));
      const std::int64_t held = held_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      std::int64_t peak = peak_.load(std::memory_order_relaxed);
      while (held > peak && !peak_.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
      }
    }
    void* const data = pointer.release_context();
    return {data, data, &free_counted, pointer.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t count) const override { inner_->copy_data(to, from, count); }

  std::int64_t held() const { return held_.load(std::memory_order_relaxed); }
  std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(held(), std::memory_order_relaxed); }

 private:
  CountingAllocator() : inner_(c10::GetCPUAllocator()), inner_deleter_(inner_->raw_deleter()) {
    if (inner_deleter_ != nullptr) c10::SetCPUAllocator(this);
  }

  static void free_counted(void* data) {
    CountingAllocator& self = instance();
    if (data != nullptr) {
      self.held_.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(data)), std::memory_order_relaxed);
    }
    self.inner_deleter_(data);
  }

  c10::Allocator* inner_;
  c10::DeleterFnPtr inner_deleter_;
  std::atomic<std::int64_t> held_ = 0, peak_ = 0;
};

inline std::atomic<bool>& counting() {
  static std::atomic<bool> value = false;
  return value;
}

}  // namespace detail

/// From now on the memory of new CPU tensors is counted, on all threads and for the rest of the process; call it first
/// in main(). Tensors over memory of others (at::from_blob, mapped files) are not counted. Those of CUDA always are, by
/// torch's caching allocator.
inline void count_tensor_memory() {
  detail::CountingAllocator::instance();
  detail::counting() = true;
}

/// Whether figures of this device's tensors exist.
inline bool counts_tensor_memory(const c10::Device& device = c10::kCPU) {
  return !device.is_cpu() || detail::counting();
}

/// Bytes that the device's tensors hold now; 0 where they are not counted.
inline std::int64_t tensor_bytes(const c10::Device& device = c10::kCPU) {
  if (!counts_tensor_memory(device)) return 0;
  if (device.is_cpu()) return detail::CountingAllocator::instance().held();
  return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].current;  // 0: of all pools together
}

/// Measures the peak of what tensors hold while it lives:
///
///     MemoryPhase phase;
///     loss.backward();
///     report(phase.peak_bytes());
///
/// Phases may lie within each other, in the order of their construction and on one thread. What they measure is all
/// threads' memory; phases of several threads at once (ranks as threads) cut each other's peaks short.
class MemoryPhase {
 public:
  explicit MemoryPhase(const c10::Device& device = c10::kCPU)
      : device_(device), start_(tensor_bytes(device)), outer_(std::exchange(innermost(), this)) {
    if (outer_ != nullptr) outer_->highest_ = outer_->peak_bytes(read_peak());
    reset_peak();
  }
  MemoryPhase(const MemoryPhase&) = delete;
  MemoryPhase& operator=(const MemoryPhase&) = delete;
  ~MemoryPhase() {
    innermost() = outer_;
    if (outer_ != nullptr) outer_->highest_ = outer_->peak_bytes(peak_bytes(read_peak()));
  }

  /// Bytes that tensors held at the start.
  std::int64_t start_bytes() const { return start_; }
  /// The most that tensors have held since; 0 where they are not counted.
  std::int64_t peak_bytes() const { return peak_bytes(read_peak()); }

 private:
  std::int64_t peak_bytes(std::int64_t device_peak) const { return std::max({start_, highest_, device_peak}); }

  std::int64_t read_peak() const {
    if (!counts_tensor_memory(device_)) return 0;
    if (device_.is_cpu()) return detail::CountingAllocator::instance().peak();
    return at::accelerator::getDeviceStats(device_.index()).allocated_bytes[0].peak;
  }
  void reset_peak() const {
    if (!counts_tensor_memory(device_)) return;
    if (device_.is_cpu()) return detail::CountingAllocator::instance().reset_peak();
    at::accelerator::resetPeakStats(device_.index());
  }

  MemoryPhase*& innermost() const {
    thread_local std::array<MemoryPhase*, 128> phases{};  // 0: the CPU's, the others by device index
    return phases.at(device_.is_cpu() ? 0 : 1 + static_cast<std::size_t>(std::max<int>(device_.index(), 0)));
  }

  c10::Device device_;
  std::int64_t start_, highest_ = 0;
  MemoryPhase* outer_;
};

}  // namespace ilme::ops
