/// The weights of a Hugging Face model folder: one safetensors file or several with an index.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/hf/foreign_weights.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/io/tensor_slice.hpp>

namespace ilme::hf {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightsIndexName = "model.safetensors.index.json";

/// Weights larger than this many bytes are written as shards; as Transformers 4 does.
inline constexpr std::uint64_t kMaxShardSize = 5'000'000'000;

namespace detail {

/// "model-00001-of-00002.safetensors" and the like.
inline bool is_shard_name(const std::string& name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

}  // namespace detail

/// The tensors of a model folder by name, whichever file they lie in.
class WeightFiles {
 public:
  /// Opens `model.safetensors`, else the shards of `model.safetensors.index.json` in `folder`; or one safetensors file.
  /// Throws InputError when there are none (with the remedy for formats that are known), a shard is missing or damaged
  /// or not in the index, the index names a tensor that is not there, or a tensor lies in two shards.
  explicit WeightFiles(const std::filesystem::path& folder) : folder_(folder) {
    std::error_code code;
    if (std::filesystem::is_regular_file(folder, code)) {
      add_shard(folder);
    } else if (std::filesystem::exists(folder / kWeightsName, code)) {
      add_shard(folder / kWeightsName);
    } else if (std::filesystem::exists(folder / kWeightsIndexName, code)) {
      open_index(folder / kWeightsIndexName);
    } else {
      refuse_foreign_weights(folder);
      throw InputError(folder.string(), ": holds neither ", kWeightsName, " nor ", kWeightsIndexName);
    }
  }

  const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Names, shard by shard, in the order of the data.
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(const std::string& name) const { return shard_of_.contains(name); }
  /// Shape and dtype without reading the data. Throws InputError when there is no such tensor.
  const io::SafetensorsEntry& entry(const std::string& name) const { return shard(name).entry(name); }
  /// The tensor, in read-only mapped memory (see io::SafetensorsFile::tensor).
  at::Tensor tensor(const std::string& name) const { return shard(name).tensor(name); }
  /// Copies a tensor without keeping the file's pages in memory (see io::SafetensorsFile::copy_to).
  void copy_to(const std::string& name, const at::Tensor& target) const { shard(name).copy_to(name, target); }
  /// The same for a range of a tensor's elements, counted row by row (see io::SafetensorsFile::copy_range_to).
  void copy_range_to(const std::string& name, std::int64_t begin, const at::Tensor& target) const {
    shard(name).copy_range_to(name, begin, target);
  }

 private:
  const io::SafetensorsFile& shard(const std::string& name) const {
    const auto found = shard_of_.find(name);
    if (found == shard_of_.end()) throw InputError(folder_.string(), ": holds no tensor ", io::quoted_name(name));
    return shards_[found->second];
  }

  void add_shard(const std::filesystem::path& path) {
    shards_.emplace_back(path);
    for (const std::string& name : shards_.back().names()) {
      const auto [other, fresh] = shard_of_.emplace(name, shards_.size() - 1);
      if (!fresh) {
        throw InputError(path.string(), ": tensor ", io::quoted_name(name), " is also in ",
                         shards_[other->second].path().filename().string());
      }
      names_.push_back(name);
    }
  }

  void open_index(const std::filesystem::path& path) {
    const Json json = read_json(path);
    JsonObject object(json, path.string());
    const Json map = object.raw("weight_map");
    if (!map.is_object()) throw InputError(path.string(), ": key \"weight_map\" must be an object");
    std::vector<std::string> files;
    for (const auto& [name, file] : map.items()) {
      const std::string text = file.is_string() ? file.get<std::string>() : "";
      if (text.empty() || text == ".." || text.find_first_of("/\\") != std::string::npos) {
        throw InputError(path.string(), ": tensor ", io::quoted_name(name), ": ", ilme::detail::short_dump(file),
                         " is not a file name");
      }
      if (std::find(files.begin(), files.end(), text) == files.end()) files.push_back(text);
    }
    std::sort(files.begin(), files.end());
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (detail::is_shard_name(name) && !std::binary_search(files.begin(), files.end(), name)) {
        throw InputError(path.string(), ": does not name the shard ", name,
                         " that lies beside it; the index or the shard is of another model");
      }
    }
    for (const std::string& file : files) {
      if (!std::filesystem::exists(folder_ / file)) {
        throw InputError(path.string(), ": shard ", file, " is missing");
      }
      add_shard(folder_ / file);
    }
    for (const auto& [name, file] : map.items()) {
      const auto found = shard_of_.find(name);
      if (found == shard_of_.end() || shards_[found->second].path().filename() != file.get<std::string>()) {
        throw InputError(path.string(), ": tensor ", io::quoted_name(name), " is not in ", file.get<std::string>());
      }
    }
  }

  std::filesystem::path folder_;
  std::vector<io::SafetensorsFile> shards_;
  std::unordered_map<std::string, std::size_t> shard_of_;
  std::vector<std::string> names_;
};

namespace detail {

/// Whether a parameter belongs to an adapter ("...q_proj.lora_A.weight"): those are not in model files.
inline bool is_adapter_name(std::string_view name) {
  return name.starts_with("lora_") || name.find(".lora_") != std::string_view::npos;
}

inline std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > 3) text += concat(" and ", names.size() - 3, " more");
  return text;
}

inline std::string shape_text(const std::vector<std::int64_t>& shape) { return Json(shape).dump(); }

}  // namespace detail

/// Copies the tensors of `files` into a model's slices, of all its parameters, by name, converting between
/// floating-point types and to the slice's device, and holds little more than the slices in memory. Nothing is changed
/// unless everything fits: InputError lists the first few names that are missing, unknown, or of another shape
/// (expected and found). Adapter parameters (a name part that starts with "lora_") and "rotary_emb.inv_freq" of old
/// files are passed over. A tied model's file may also hold "lm_head.weight" when it equals the embedding.
inline void load_slices(const std::vector<io::TensorSlice>& slices, const WeightFiles& files) {
  std::vector<std::string> missing, unknown, unfit;
  std::unordered_set<std::string> expected;
  for (const io::TensorSlice& slice : slices) {
    const std::string& name = slice.name;
    if (detail::is_adapter_name(name)) continue;
    expected.insert(name);
    if (!files.contains(name)) {
      missing.push_back(name);
      continue;
    }
    const io::SafetensorsEntry& entry = files.entry(name);
    if (entry.shape != slice.shape) {
      unfit.push_back(
          concat(name, " has shape ", detail::shape_text(entry.shape), ", expected ", detail::shape_text(slice.shape)));
    } else if (!c10::isFloatingType(io::scalar_type_of_safetensors(entry.dtype))) {
      unfit.push_back(concat(name, " has dtype ", entry.dtype, ", expected floating point"));
    }
  }
  static constexpr const char* kHead = "lm_head.weight";
  static constexpr const char* kEmbedding = "model.embed_tokens.weight";
  bool tied_head = false;
  for (const std::string& name : files.names()) {
    if (expected.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    if (name == kHead && expected.contains(kEmbedding) && files.contains(kEmbedding)) {
      tied_head = true;
    } else {
      unknown.push_back(name);
    }
  }
  const std::string where = files.folder().string();
  if (!missing.empty()) throw InputError(where, ": missing tensors: ", detail::listed(missing));
  if (!unknown.empty()) throw InputError(where, ": tensors that the model does not have: ", detail::listed(unknown));
  if (!unfit.empty()) throw InputError(where, ": tensors that do not fit the model: ", detail::listed(unfit));
  if (tied_head && !files.tensor(kHead).equal(files.tensor(kEmbedding))) {
    throw InputError(where, ": ", kHead, " differs from ", kEmbedding,
                     ", but the model ties them (tie_word_embeddings is true)");
  }
  const c10::NoGradGuard no_grad;
  for (const io::TensorSlice& slice : slices) {
    if (detail::is_adapter_name(slice.name)) continue;
    if (slice.is_whole() && slice.tensor.sizes() == at::IntArrayRef(slice.shape)) {
      files.copy_to(slice.name, slice.tensor);
    } else {
      files.copy_range_to(slice.name, slice.begin, slice.tensor);
    }
  }
}

/// The same for a model that is whole.
inline void load_parameters(torch::nn::Module& module, const WeightFiles& files) {
  load_slices(io::whole_slices(module.named_parameters().pairs()), files);
}

/// How weights are spread over files.
struct WeightLayout {
  std::vector<std::string> files;    ///< model.safetensors, or the shards
  std::vector<std::size_t> file_of;  ///< of each tensor
  std::uint64_t total_bytes = 0;

  /// `bytes` of each tensor; a file has at most `max_shard_size` of them, or one tensor.
  WeightLayout(const std::vector<std::uint64_t>& bytes, std::uint64_t max_shard_size) {
    std::size_t count = 1;
    std::uint64_t shard_size = 0;
    for (const std::uint64_t size : bytes) {
      if (shard_size > 0 && shard_size + size > max_shard_size) {
        ++count;
        shard_size = 0;
      }
      file_of.push_back(count - 1);
      shard_size += size;
      total_bytes += size;
    }
    for (std::size_t i = 0; i < count; ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
      files.emplace_back(count == 1 ? kWeightsName : name);
    }
  }
};

/// Ends the writing of weight files, of tensors with these names: writes the index when there are several, and removes
/// the weight files of an earlier save, so that none of them is taken for this model's.
inline void finish_weights(const std::filesystem::path& folder, const WeightLayout& layout,
                           const std::vector<std::string>& names) {
  std::vector<std::string> written = layout.files;
  if (layout.files.size() > 1) {
    Json weight_map = Json::object();
    for (std::size_t i = 0; i < names.size(); ++i) weight_map[names[i]] = layout.files[layout.file_of[i]];
    write_json(folder / kWeightsIndexName,
               {{"metadata", {{"total_size", layout.total_bytes}}}, {"weight_map", weight_map}});
    written.emplace_back(kWeightsIndexName);
  }
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == kWeightsName || name == kWeightsIndexName || detail::is_shard_name(name);
    if (ours && std::find(written.begin(), written.end(), name) == written.end()) stale.push_back(entry.path());
  }
  for (const auto& path : stale) std::filesystem::remove(path);
}

/// Writes `tensors` to `model.safetensors` in `folder`, or to shards of at most `max_shard_size` bytes with an index
/// when they are more; floating-point ones as `convert` when it is given. Weight files of an earlier save there are
/// removed at the end. Throws RunError when writing fails.
inline void save_weights(const io::NamedTensors& tensors, const std::filesystem::path& folder,
                         std::optional<at::ScalarType> convert = std::nullopt,
                         std::uint64_t max_shard_size = kMaxShardSize) {
  std::vector<std::uint64_t> bytes;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
    bytes.push_back(static_cast<std::uint64_t>(tensor.numel()) *
                    c10::elementSize(io::detail::written_type(tensor, convert)));
  }
  const WeightLayout layout(bytes, max_shard_size);
  std::vector<io::NamedTensors> shards(layout.files.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) shards[layout.file_of[i]].push_back(tensors[i]);
  ilme::detail::create_folders(folder);
  ilme::detail::remove_unfinished(folder, "model");
  for (std::size_t i = 0; i < shards.size(); ++i) {
    io::save_safetensors(folder / layout.files[i], shards[i], {{"format", "pt"}}, convert);
  }
  finish_weights(folder, layout, names);
}

/// Writes the parameters of `module` (without adapters) as `dtype`, as save_weights does.
inline void save_parameters(const torch::nn::Module& module, const std::filesystem::path& folder, at::ScalarType dtype,
                            std::uint64_t max_shard_size = kMaxShardSize) {
  io::NamedTensors tensors;
  for (const auto& item : module.named_parameters()) {
    if (!detail::is_adapter_name(item.key())) tensors.emplace_back(item.key(), item.value());
  }
  save_weights(tensors, folder, dtype, max_shard_size);
}

}  // namespace ilme::hf
