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
    return elements(found, 0, count(found)).view(found.shape);
  }

  /// Elements [begin, begin + target.numel()) of a tensor, counted row by row, into a contiguous `target` of whatever
  /// shape, dtype and device. Piece by piece, and gives the file's pages back on the way: what this process holds at
  /// once is the target and about 32 MiB of the file. Throws as tensor() does, and for a range that the tensor does not
  /// have.
  void copy_range_to(const std::string& name, std::int64_t begin, const at::Tensor& target) const {
    const SafetensorsEntry& found = entry(name);
    const std::int64_t wanted = target.numel();
    if (begin < 0 || begin > count(found) || wanted > count(found) - begin) {
      throw InputError(path_.string(), ": tensor ", quoted_name(name), " has ", count(found), " elements, elements ",
                       begin, " to ", begin + wanted, " were asked for");
    }
    const at::Tensor flat = target.view({wanted});
    const auto size = static_cast<std::int64_t>(c10::elementSize(scalar_type_of_safetensors(found.dtype)));
    const std::int64_t step = kReadChunkBytes / size;
    for (std::int64_t done = 0; done < wanted; done += step) {
      const std::int64_t part = std::min(step, wanted - done);
      flat.narrow(0, done, part).copy_(elements(found, begin + done, part));
      map_->release(header_.data_begin + found.begin + static_cast<std::size_t>((begin + done) * size),
                    static_cast<std::size_t>(part * size));
    }
  }

  /// Copies a tensor into `target` of the same shape, as copy_range_to does (at once when the target is not
  /// contiguous).
  void copy_to(const std::string& name, const at::Tensor& target) const {
    const SafetensorsEntry& found = entry(name);
    if (target.sizes() != at::IntArrayRef(found.shape)) {
      throw InputError(path_.string(), ": tensor ", quoted_name(name), " has shape ", at::IntArrayRef(found.shape),
                       ", expected ", target.sizes());
    }
    if (target.is_contiguous()) return copy_range_to(name, 0, target);
    target.copy_(tensor(name));
    map_->release(header_.data_begin + found.begin, found.end - found.begin);
  }

  /// All tensors, as tensor() gives them.
  NamedTensors tensors() const {
    NamedTensors all;
    for (const std::string& name : names_) all.emplace_back(name, tensor(name));
    return all;
  }

 private:
  static std::int64_t count(const SafetensorsEntry& entry) {
    return static_cast<std::int64_t>((entry.end - entry.begin) / *safetensors_dtype_size(entry.dtype));
  }

  /// Elements [begin, begin + size) as a tensor of one dimension.
  at::Tensor elements(const SafetensorsEntry& entry, std::int64_t begin, std::int64_t size) const {
    const auto type = scalar_type_of_safetensors(entry.dtype);
    const auto options = at::TensorOptions().dtype(type);
    if (size == 0) return at::empty({0}, options);
    const std::size_t element = c10::elementSize(type), bytes = static_cast<std::size_t>(size) * element;
    const std::byte* data =
        map_->bytes().data() + header_.data_begin + entry.begin + static_cast<std::size_t>(begin) * element;
    if (type == at::kBool && !std::all_of(data, data + bytes, [](std::byte b) { return b <= std::byte{1}; })) {
      throw InputError(path_.string(), ": tensor ", quoted_name(entry.name), ": a BOOL byte is neither 0 nor 1");
    }
    if (reinterpret_cast<std::uintptr_t>(data) % element != 0) {
      at::Tensor copy = at::empty({size}, options);
      std::memcpy(copy.mutable_data_ptr(), data, bytes);
      return copy;
    }
    return at::from_blob(
        const_cast<std::byte*>(data), {size}, [map = map_](void*) {}, options);
  }

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
  for (const Item& item : items) {
    entries.push_back({*item.name, std::string(safetensors_dtype_name(item.type)), item.tensor.sizes().vec()});
  }
  lay_out_safetensors(entries);
  const std::string header = write_safetensors_header(entries, metadata, path.string());
  AtomicFile file(path);
  file.write(header);
  for (const Item& item : items) detail::write_values(file, item.tensor, item.type);
  file.commit();
}

}  // namespace ilme::io
