/// Tensors that lie whole in one safetensors file or in pieces in several, read by any range of their elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/safetensors.hpp>

namespace ilme::checkpoint {

/// Metadata of a file that holds pieces: JSON text `{"name": {"shape": [of the whole], "begin": element}, ...}`. A
/// piece has one dimension; tensors that are not named there are whole.
inline constexpr const char* kSlicesKey = "slices";

/// The tensors of a group of files that together hold each of them once.
class SlicedTensors {
 public:
  /// Throws InputError that names the file and the tensor when pieces of a tensor leave a gap, overlap, or disagree
  /// about its shape or dtype.
  explicit SlicedTensors(std::vector<io::SafetensorsFile> files) : files_(std::move(files)) {
    for (std::size_t i = 0; i < files_.size(); ++i) add_pieces(i);
    for (const std::string& name : names_) check_cover(name, wholes_.at(name));
  }

  /// In the order of the files.
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(const std::string& name) const { return wholes_.contains(name); }
  /// Of the whole tensor. Throws InputError when there is none of that name, as all that follow.
  const std::vector<std::int64_t>& shape(const std::string& name) const { return whole(name).shape; }
  at::ScalarType dtype(const std::string& name) const { return whole(name).type; }
  /// The first of the files, for messages.
  const std::filesystem::path& path() const { return files_.front().path(); }

  /// The whole tensor on the CPU: mapped, read-only memory when it lies in one file (io::SafetensorsFile::tensor), else
  /// a copy.
  at::Tensor tensor(const std::string& name) const {
    const Whole& found = whole(name);
    if (found.pieces.size() == 1) return files_[found.pieces[0].file].tensor(name).view(found.shape);
    at::Tensor all = at::empty(found.shape, at::TensorOptions(found.type));
    copy_range_to(name, 0, all);
    return all;
  }

  /// Elements [begin, begin + target.numel()) of the whole tensor, counted row by row, into a contiguous `target` of
  /// whatever shape, dtype and device, as io::SafetensorsFile::copy_range_to does it.
  void copy_range_to(const std::string& name, std::int64_t begin, const at::Tensor& target) const {
    const Whole& found = whole(name);
    const std::int64_t end = begin + target.numel(), size = found.pieces.back().end;
    if (begin < 0 || end > size) {
      throw InputError(files_[found.pieces[0].file].path().string(), ": tensor ", io::quoted_name(name), " has ", size,
                       " elements, elements ", begin, " to ", end, " were asked for");
    }
    const at::Tensor flat = target.view({target.numel()});
    for (const Piece& piece : found.pieces) {
      const std::int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
      if (from >= to) continue;
      files_[piece.file].copy_range_to(name, from - piece.begin, flat.narrow(0, from - begin, to - from));
    }
  }

  /// The same for all of it; throws InputError when the shape is another.
  void copy_to(const std::string& name, const at::Tensor& target) const {
    const Whole& found = whole(name);
    if (target.sizes() != at::IntArrayRef(found.shape)) {
      throw InputError(files_[found.pieces[0].file].path().string(), ": tensor ", io::quoted_name(name), " has shape ",
                       at::IntArrayRef(found.shape), ", expected ", target.sizes());
    }
    copy_range_to(name, 0, target);
  }

 private:
  struct Piece {
    std::size_t file;
    std::int64_t begin, end;
  };
  struct Whole {
    std::vector<std::int64_t> shape;
    at::ScalarType type;
    std::vector<Piece> pieces;
  };

  const Whole& whole(const std::string& name) const {
    const auto found = wholes_.find(name);
    if (found == wholes_.end()) throw InputError(path().string(), ": holds no tensor ", io::quoted_name(name));
    return found->second;
  }

  void add_pieces(std::size_t index) {
    const io::SafetensorsFile& file = files_[index];
    const std::string where = file.path().string() + ": metadata \"" + kSlicesKey + "\"";
    const auto text = file.metadata().find(kSlicesKey);
    const Json slices = text == file.metadata().end() ? Json::object() : parse_json(text->second, where);
    JsonObject places(slices, where);
    for (const std::string& name : file.names()) {
      const io::SafetensorsEntry& entry = file.entry(name);
      std::vector<std::int64_t> shape = entry.shape;
      std::int64_t begin = 0;
      if (places.has(name)) {
        const Json place = places.raw(name);
        JsonObject object(place, where + " of " + io::quoted_name(name));
        shape = object.require<std::vector<std::int64_t>>("shape");
        begin = object.require<std::int64_t>("begin");
      }
      const auto type = io::scalar_type_of_safetensors(entry.dtype);
      const auto size = static_cast<std::int64_t>((entry.end - entry.begin) / c10::elementSize(type));
      const auto [known, fresh] = wholes_.try_emplace(name, Whole{shape, type, {}});
      if (fresh) names_.push_back(name);
      if (known->second.shape != shape || known->second.type != type) {
        throw InputError(file.path().string(), ": tensor ", io::quoted_name(name), " is a piece of ", entry.dtype, " ",
                         at::IntArrayRef(shape), ", in ",
                         files_[known->second.pieces[0].file].path().filename().string(), " of ",
                         io::safetensors_dtype_name(known->second.type), " ", at::IntArrayRef(known->second.shape));
      }
      known->second.pieces.push_back({index, begin, begin + size});
    }
  }

  /// Sorts the pieces and sees that they are all of the tensor, once.
  void check_cover(const std::string& name, Whole& whole) const {
    std::int64_t size = 1;
    for (const std::int64_t extent : whole.shape) {
      if (extent < 0 || __builtin_mul_overflow(size, extent, &size)) {
        throw InputError(path().string(), ": tensor ", io::quoted_name(name), ": bad shape ",
                         at::IntArrayRef(whole.shape));
      }
    }
    std::sort(whole.pieces.begin(), whole.pieces.end(),
              [](const Piece& a, const Piece& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::int64_t end = 0;
    std::size_t last = whole.pieces[0].file;
    for (const Piece& piece : whole.pieces) {
      if (piece.begin != end || piece.end > size) {
        throw InputError(files_[piece.file].path().string(), ": tensor ", io::quoted_name(name), ": elements ",
                         piece.begin, " to ", piece.end, " follow those to ", end, " in ",
                         files_[last].path().filename().string(), ": ",
                         piece.begin < end   ? "an overlap"
                         : piece.begin > end ? "a gap"
                                             : concat("more than the ", size, " of its shape"));
      }
      end = piece.end;
      last = piece.file;
    }
    if (end != size) {
      throw InputError(files_[last].path().string(), ": tensor ", io::quoted_name(name), ": elements ", end, " to ",
                       size, " are in none of the files");
    }
  }

  std::vector<io::SafetensorsFile> files_;
  std::vector<std::string> names_;
  std::map<std::string, Whole> wholes_;
};

}  // namespace ilme::checkpoint
