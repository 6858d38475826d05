/// The token ids of one document, wherever they lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ilme::data {

/// Token ids stored as 16-bit or 32-bit words; a view, which owns nothing.
class TokenView {
 public:
  TokenView() = default;
  explicit TokenView(std::span<const std::uint16_t> ids) : narrow_(ids.data()), size_(ids.size()) {}
  explicit TokenView(std::span<const std::uint32_t> ids) : wide_(ids.data()), size_(ids.size()) {}

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::uint32_t operator[](std::size_t i) const { return wide_ != nullptr ? wide_[i] : narrow_[i]; }

  /// Writes ids [first, first + count) to `out`, widened.
  void copy(std::size_t first, std::size_t count, std::int64_t* out) const {
    if (wide_ != nullptr) {
      std::copy_n(wide_ + first, count, out);
    } else if (narrow_ != nullptr) {
      std::copy_n(narrow_ + first, count, out);
    }
  }

  std::vector<std::uint32_t> to_vector() const {
    std::vector<std::uint32_t> ids(size_);
    for (std::size_t i = 0; i < size_; ++i) ids[i] = (*this)[i];
    return ids;
  }

 private:
  const std::uint16_t* narrow_ = nullptr;
  const std::uint32_t* wide_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ilme::data
