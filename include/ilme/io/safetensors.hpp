/// Reading and writing safetensors files as tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/memory_map.hpp>
#include <ilme/io/dtype.hpp>
#include <ilme/io/safetensors_header.hpp>

namespace ilme::io {

/// Tensors with their names, in file order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What is copied at once from a file's pages.
inline constexpr std::int64_t kReadChunkBytes = std::int64_t{32} << 20;

/// A safetensors file, mapped: opening reads the header alone, and tensors share the mapped pages. Copyable; copies and
/// tensors keep the mapping alive. The file must not be changed in place meanwhile (replacing it by rename is fine).
class SafetensorsFile {
 public:
  /// Throws InputError that names the file and the fault when the file is not a valid safetensors file.
  explicit SafetensorsFile(const std::filesystem::path& path)
      : path_(path), map_(std::make_shared<const MemoryMap>(path)) {
    header_ = parse_safetensors_header(map_->text(), path.string());
    for (std::size_t i = 0; i < header_.tensors.size(); ++i) {
      names_.push_back(header_.tensors[i].name);
      index_.emplace(header_.tensors[i].name, i);
    }
  }

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Names in the order of the data.
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(const std::string& name) const { return index_.contains(name); }
  const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }
  /// Shape, dtype and place of a tensor, without touching its data. Throws InputError when there is none of that name.
  const SafetensorsEntry& entry(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) throw InputError(path_.string(), ": holds no tensor ", quoted_name(name));
    return header_.tensors[found->second];
  }

  /// The tensor on the CPU. Its memory is the read-only mapping: writing to it in place is a segmentation fault, so
  /// clone or copy_ it first. Data that is not aligned to its element size is copied. Throws InputError for a name that
  /// is not there, or a BOOL byte other than 0 and 1.
  at::Tensor tensor(const std::string& name) const {
    const SafetensorsEntry& found = entry(name);
    const auto type = scalar_type_of_safetensors(found.dtype);
    const auto options = at::TensorOptions().dtype(type);
    const std::size_t size = found.end - found.begin;
    if (size == 0) return at::empty(found.shape, options);
    const std::byte* data = map_->bytes().data() + header_.data_begin + found.begin;
    if (type == at::kBool && !std::all_of(data, data + size, [](std::byte b) { return b <= std::byte{1}; })) {
      throw InputError(path_.string(), ": tensor ", quoted_name(name), ": a BOOL byte is neither 0 nor 1");
    }
    if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(type) != 0) {
      at::Tensor copy = at::empty(found.shape, options);
      std::memcpy(copy.mutable_data_ptr(), data, size);
      return copy;
    }
    return at::from_blob(
        const_cast<std::byte*>(data), found.shape, [map = map_](void*) {}, options);
  }

  /// Copies a tensor into `target` of the same shape, whatever its dtype and device. Piece by piece, and gives the
  /// file's pages back on the way: what this process holds at once is the target and about 32 MiB of the file. Throws
  /// as tensor() does.
  void copy_to(const std::string& name, at::Tensor target) const {
    const at::Tensor source = tensor(name);
    const SafetensorsEntry& found = entry(name);
    const std::size_t begin = header_.data_begin + found.begin;
    const auto rows = source.dim() == 0 ? 1 : source.size(0);
    const auto bytes = static_cast<std::int64_t>(found.end - found.begin);
    const std::int64_t row_bytes = rows == 0 ? 0 : bytes / rows;
    const std::int64_t step = row_bytes == 0 ? rows : std::max<std::int64_t>(1, kReadChunkBytes / row_bytes);
    if (step >= rows) {
      target.copy_(source);
    } else {
      for (std::int64_t row = 0; row < rows; row += step) {
        const std::int64_t count = std::min(step, rows - row);
        target.narrow(0, row, count).copy_(source.narrow(0, row, count));
        map_->release(begin + static_cast<std::size_t>(row * row_bytes), static_cast<std::size_t>(count * row_bytes));
      }
    }
    map_->release(begin, static_cast<std::size_t>(bytes));
  }

  /// All tensors, as tensor() gives them.
  NamedTensors tensors() const {
    NamedTensors all;
    for (const std::string& name : names_) all.emplace_back(name, tensor(name));
    return all;
  }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MemoryMap> map_;
  SafetensorsHeader header_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> index_;
};

namespace detail {

/// What is copied at once when a tensor cannot be written from its own memory.
inline constexpr std::int64_t kWriteChunkBytes = std::int64_t{32} << 20;

/// The type that a tensor is written as: `convert` for floating-point tensors when given, else its own.
inline at::ScalarType written_type(const at::Tensor& tensor, std::optional<at::ScalarType> convert) {
  return convert && tensor.is_floating_point() ? *convert : tensor.scalar_type();
}

/// Writes the logical values in row-major order as `type`, whatever the strides, the storage offset and the device.
inline void write_values(AtomicFile& file, const at::Tensor& tensor, at::ScalarType type) {
  if (tensor.numel() == 0) return;
  const bool direct = tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_neg() && tensor.scalar_type() == type;
  if (direct || static_cast<std::int64_t>(tensor.nbytes()) <= kWriteChunkBytes) {
    const at::Tensor values = direct ? tensor : tensor.to(type).cpu().resolve_neg().contiguous();
    file.write(values.const_data_ptr(), values.nbytes());
    return;
  }
  const std::int64_t row_bytes = static_cast<std::int64_t>(tensor.nbytes()) / tensor.size(0);
  const std::int64_t rows = std::max<std::int64_t>(1, kWriteChunkBytes / row_bytes);
  for (std::int64_t row = 0; row < tensor.size(0); row += rows) {
    if (row_bytes > kWriteChunkBytes) {
      write_values(file, tensor.select(0, row), type);
    } else {
      write_values(file, tensor.narrow(0, row, std::min(rows, tensor.size(0) - row)), type);
    }
  }
}

}  // namespace detail

/// Writes `tensors` to `path`, atomically. Each is written in full, row-major, whatever view of whatever storage it is;
/// two names on one storage give two copies. Data is ordered by element size, largest first, and by the given order
/// within a size, so that every tensor is aligned. `metadata` defaults to what Transformers expects; `convert` writes
/// floating-point tensors as that type. Holds at most about 64 MiB beside the tensors (for those that are converted,
/// not contiguous, or on a device). Throws InputError for a dtype or layout that the format does not know or a bad
/// name, RunError when writing fails (a full disk).
inline void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                             std::optional<at::ScalarType> convert = std::nullopt) {
  struct Item {
    const std::string* name;
    at::Tensor tensor;
    at::ScalarType type;
  };
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    const std::string where = path.string() + ": tensor " + quoted_name(name);
    if (!tensor.defined()) throw InputError(where, ": is not defined");
    if (tensor.layout() != at::kStrided || tensor.is_meta()) {
      throw InputError(where, ": only dense tensors with data can be written");
    }
    items.push_back({&name, tensor.detach(), detail::written_type(tensor, convert)});
    if (safetensors_dtype_name(items.back().type).empty()) {
      throw InputError(where, ": dtype ", c10::toString(items.back().type), " cannot be written");
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return c10::elementSize(a.type) > c10::elementSize(b.type); });
  std::vector<SafetensorsEntry> entries;
  std::uint64_t position = 0;
  for (const Item& item : items) {
    const std::uint64_t end = position + static_cast<std::uint64_t>(item.tensor.numel()) * c10::elementSize(item.type);
    entries.push_back(
        {*item.name, std::string(safetensors_dtype_name(item.type)), item.tensor.sizes().vec(), position, end});
    position = end;
  }
  const std::string header = write_safetensors_header(entries, metadata, path.string());
  AtomicFile file(path);
  file.write(header);
  for (const Item& item : items) detail::write_values(file, item.tensor, item.type);
  file.commit();
}

}  // namespace ilme::io
