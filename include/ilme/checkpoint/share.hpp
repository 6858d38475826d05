/// Which rank writes what of a checkpoint.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <ilme/checkpoint/agreement.hpp>
#include <ilme/checkpoint/sliced_tensors.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/huge_pages.hpp>
#include <ilme/core/json.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/optim/parameter_slice.hpp>

namespace ilme::checkpoint {

using Slices = std::vector<optim::ParameterSlice>;

/// What a checkpoint holds: groups of tensors by name ("model" becomes model.safetensors), each whole
/// (optim::whole_slices) or this rank's part of it, and everything else as JSON (numbers keep all their bits; JSON has
/// no NaN or infinity, they read back as null), which rank 0 gives.
struct Contents {
  std::map<std::string, Slices> files;
  Json state = Json::object();
};

/// The part of Contents that this rank writes.
struct Share {
  std::map<std::string, Slices> files;
  Json state;
  std::int64_t bytes = 0;       ///< of the tensors
  std::int64_t host_bytes = 0;  ///< with those of the other ranks on this host
  int host_ranks = 0;           ///< how many write on this host

  /// Goes on with copies, in main memory, of the tensors: the originals may change. Throws RunError when there is not
  /// enough of it.
  void copy_tensors() {
    static constexpr std::size_t kAlignment = 64;
    const auto space = [](const at::Tensor& tensor) {
      return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
    };
    std::size_t total = 0;
    for (const auto& [group, slices] : files) {
      for (const optim::ParameterSlice& slice : slices) total += space(slice.tensor);
    }
    const std::shared_ptr<std::byte> memory = map_memory(total);
    std::size_t at = 0;
    for (auto& [group, slices] : files) {
      for (optim::ParameterSlice& slice : slices) {
        at::Tensor copy = at::from_blob(
            memory.get() + at, slice.tensor.sizes(), [memory](void*) {}, at::TensorOptions(slice.tensor.scalar_type()));
        at += space(slice.tensor);
        slice.tensor = copy.copy_(slice.tensor.detach());
      }
    }
  }
};

namespace detail {

/// A piece of a tensor as the ranks tell each other of it.
struct SharedPiece {
  std::int64_t begin, end, bytes;
  std::vector<std::size_t> ranks;  // that have it
};
struct SharedTensor {
  std::vector<std::int64_t> shape;
  std::string dtype;
  std::vector<SharedPiece> pieces;
};

inline std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

inline Json described(const Contents& contents) {
  Json files = Json::object();
  for (const auto& [group, slices] : contents.files) {
    if (group.empty() || group.find_first_of("/\\.") != std::string::npos) {
      throw InputError("checkpoint file name \"", group, "\" is not a plain name");
    }
    Json& list = files[group] = Json::array();
    std::set<std::string_view> names;
    for (const optim::ParameterSlice& slice : slices) {
      if (!names.insert(slice.name).second) {
        throw InputError("checkpoint file \"", group, "\": tensor \"", slice.name, "\" is given twice");
      }
      list.push_back({slice.name, slice.shape, c10::toString(slice.tensor.scalar_type()), slice.begin, slice.end(),
                      slice.tensor.nbytes()});
    }
  }
  return {{"host", host_name()}, {"files", std::move(files)}};
}

/// Throws InputError unless the pieces are the whole tensor, once.
inline void check_pieces(const std::string& group, const std::string& name, SharedTensor& tensor) {
  std::int64_t size = 1, at = 0;
  for (const std::int64_t extent : tensor.shape) size *= extent;
  std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const SharedPiece& a, const SharedPiece& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (size > 0) std::erase_if(tensor.pieces, [](const SharedPiece& piece) { return piece.begin == piece.end; });
  for (const SharedPiece& piece : tensor.pieces) {
    if (piece.begin != at) break;
    at = piece.end;
  }
  if (at != size) {
    throw InputError("checkpoint file \"", group, "\": the ranks' parts of tensor \"", name,
                     "\" do not meet at element ", at, " of ", size);
  }
}

}  // namespace detail

/// Which part of the contents this rank is to write: of a piece that several ranks have it falls to the one that has
/// least to write so far. Throws InputError, on all ranks, when the parts of a tensor do not make a whole or the ranks
/// disagree about it. Collective.
inline Share share_of(const dist::Group& group, const Contents& contents) {
  const auto texts = on_all_ranks(group, [&] { return detail::described(contents).dump(); });
  std::vector<std::string> hosts;
  std::map<std::string, std::map<std::string, detail::SharedTensor>> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const Json json = parse_json(texts[rank], "checkpoint contents of a rank");
    hosts.push_back(json.at("host").get<std::string>());
    for (const auto& [group_name, slices] : json.at("files").items()) {
      for (const Json& slice : slices) {
        const auto name = slice.at(0).get<std::string>();
        const auto shape = slice.at(1).get<std::vector<std::int64_t>>();
        const auto dtype = slice.at(2).get<std::string>();
        auto& tensor = groups[group_name].try_emplace(name, detail::SharedTensor{shape, dtype, {}}).first->second;
        if (tensor.shape != shape || tensor.dtype != dtype) {
          throw InputError("checkpoint file \"", group_name, "\": tensor \"", name, "\" is ", dtype, " ",
                           at::IntArrayRef(shape), " on rank ", rank, ", ", tensor.dtype, " ",
                           at::IntArrayRef(tensor.shape), " on lower ranks");
        }
        const auto begin = slice.at(3).get<std::int64_t>(), end = slice.at(4).get<std::int64_t>();
        const auto same = std::find_if(tensor.pieces.begin(), tensor.pieces.end(),
                                       [&](const auto& piece) { return piece.begin == begin && piece.end == end; });
        if (same != tensor.pieces.end()) {
          same->ranks.push_back(rank);
        } else {
          tensor.pieces.push_back({begin, end, slice.at(5).get<std::int64_t>(), {rank}});
        }
      }
    }
  }
  std::vector<std::int64_t> bytes(texts.size());
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> mine;
  for (auto& [group_name, tensors] : groups) {
    for (auto& [name, tensor] : tensors) {
      detail::check_pieces(group_name, name, tensor);
      for (const detail::SharedPiece& piece : tensor.pieces) {
        const std::size_t writer = *std::min_element(piece.ranks.begin(), piece.ranks.end(),
                                                     [&](std::size_t a, std::size_t b) { return bytes[a] < bytes[b]; });
        bytes[writer] += piece.bytes;
        if (writer == static_cast<std::size_t>(group.rank())) mine[{group_name, name}] = {piece.begin, piece.end};
      }
    }
  }
  Share share;
  for (const auto& [group_name, slices] : contents.files) {
    Slices& kept = share.files[group_name];
    for (const optim::ParameterSlice& slice : slices) {
      const auto found = mine.find({group_name, slice.name});
      if (found != mine.end() && found->second == std::pair(slice.begin, slice.end())) kept.push_back(slice);
    }
  }
  share.state = contents.state;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] != hosts[static_cast<std::size_t>(group.rank())]) continue;
    share.host_bytes += bytes[rank];
    ++share.host_ranks;
  }
  share.bytes = bytes[static_cast<std::size_t>(group.rank())];
  return share;
}

/// "model.safetensors" of one process; "model.rank-0002-of-0004.safetensors" of the second of four.
inline std::string share_file_name(const std::string& group_name, int rank, int size) {
  if (size == 1) return group_name + ".safetensors";
  std::array<char, 48> place{};
  std::snprintf(place.data(), place.size(), ".rank-%04d-of-%04d.safetensors", rank + 1, size);
  return group_name + place.data();
}

/// Writes a group's slices, atomically, as SlicedTensors reads them. Throws as io::save_safetensors does.
inline void save_slices(const std::filesystem::path& path, const Slices& slices) {
  io::NamedTensors tensors;
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  std::map<std::string, Json> places;
  for (const optim::ParameterSlice& slice : slices) {
    if (slice.is_whole()) {
      tensors.emplace_back(slice.name, slice.tensor.view(slice.shape));
    } else {
      tensors.emplace_back(slice.name, slice.tensor);
      places[slice.name] = {{"shape", slice.shape}, {"begin", slice.begin}};
    }
  }
  if (!places.empty()) metadata.emplace(kSlicesKey, nlohmann::json(places).dump());
  io::save_safetensors(path, tensors, metadata);
}

}  // namespace ilme::checkpoint
