/// One Hugging Face model folder written by all ranks, none of which ever has the whole model.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ilme/checkpoint/agreement.hpp>
#include <ilme/checkpoint/share.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/hf/model_folder.hpp>
#include <ilme/hf/weights.hpp>
#include <ilme/io/safetensors.hpp>
#include <ilme/nn/llama_config.hpp>

namespace ilme::checkpoint {

namespace detail {

/// A file that several processes write at once, each its own bytes.
class SharedFile {
 public:
  /// `size`: makes the file new, of so many bytes; else it must be there.
  explicit SharedFile(std::filesystem::path path, std::optional<std::uint64_t> size = std::nullopt)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | (size ? O_CREAT | O_TRUNC : 0), 0644)) {
    if (fd_ < 0) throw RunError(path_.string(), ": cannot open: ", ilme::detail::errno_text());
    if (size && ::ftruncate(fd_, static_cast<off_t>(*size)) != 0) fail("cannot make it that large");
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  void write(std::uint64_t position, const void* data, std::size_t size) {
    const char* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written =
          ::pwrite(fd_, bytes, std::min<std::size_t>(size, std::size_t{1} << 30), static_cast<off_t>(position));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot write");
      bytes += written;
      position += static_cast<std::uint64_t>(written);
      size -= static_cast<std::size_t>(written);
    }
  }
  void commit() {
    if (::fsync(fd_) != 0) fail("cannot flush to disk");
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot close");
  }

 private:
  [[noreturn]] void fail(const char* what) {
    const std::string reason = ilme::detail::errno_text();
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    throw RunError(path_.string(), ": ", what, ": ", reason);
  }

  std::filesystem::path path_;
  int fd_;
};

/// A weight file under the name that it has until all ranks are done, and what comes before its tensors' data.
struct ExportFile {
  std::string name, unfinished, header;
  std::vector<io::SafetensorsEntry> entries;
};

/// The files of a model, by the names, shapes and dtypes that every rank knows.
inline std::vector<ExportFile> export_files(const Slices& slices, const hf::WeightLayout& layout, at::ScalarType dtype,
                                            const std::string& suffix) {
  std::vector<ExportFile> files;
  for (const std::string& name : layout.files) files.push_back({name, "." + name + suffix, {}, {}});
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto type = io::detail::written_type(slices[i].tensor, dtype);
    files[layout.file_of[i]].entries.push_back(
        {slices[i].name, std::string(io::safetensors_dtype_name(type)), slices[i].shape});
  }
  for (ExportFile& file : files) {
    io::lay_out_safetensors(file.entries);
    file.header = io::write_safetensors_header(file.entries, {{"format", "pt"}}, file.name);
  }
  return files;
}

/// Writes this rank's elements of a file, converted in pieces of 32 MiB.
inline void write_elements(const std::filesystem::path& folder, const ExportFile& file,
                           const std::map<std::string, const optim::ParameterSlice*>& mine) {
  std::optional<SharedFile> out;
  for (const io::SafetensorsEntry& entry : file.entries) {
    const auto found = mine.find(entry.name);
    if (found == mine.end()) continue;
    if (!out) out.emplace(folder / file.unfinished);
    const auto type = io::scalar_type_of_safetensors(entry.dtype);
    const auto size = static_cast<std::int64_t>(c10::elementSize(type));
    const at::Tensor flat = found->second->tensor.detach().reshape({-1});
    const std::int64_t step = io::detail::kWriteChunkBytes / size;
    for (std::int64_t at = 0; at < flat.numel(); at += step) {
      const at::Tensor piece = flat.narrow(0, at, std::min(step, flat.numel() - at)).to(type).cpu().contiguous();
      out->write(file.header.size() + entry.begin + static_cast<std::uint64_t>((found->second->begin + at) * size),
                 piece.const_data_ptr(), piece.nbytes());
    }
  }
  if (out) out->commit();
}

}  // namespace detail

/// Writes the folder that hf::save_model would write of the whole model, byte for byte. `slices` are this rank's parts
/// of all parameters, in the same order on all ranks; adapters are left out. Every rank writes its elements in place
/// and needs 32 MiB beside them; rank 0 writes the other files. A rank's failure (RunError: a full disk) is an error on
/// all, and the older model stays. All hosts must share the folder. Collective.
inline void save_model(const Slices& slices, const nn::LlamaConfig& config, const std::filesystem::path& folder,
                       at::ScalarType dtype, const std::filesystem::path& tokenizer_folder, const dist::Group& group,
                       const hf::SaveOptions& options = {}) {
  Contents contents;
  Slices& weights = contents.files["model"];
  std::vector<std::uint64_t> bytes;
  std::vector<std::string> names;
  for (const optim::ParameterSlice& slice : slices) {
    if (hf::detail::is_adapter_name(slice.name)) continue;
    weights.push_back(slice);
    names.push_back(slice.name);
    bytes.push_back(static_cast<std::uint64_t>(slice.whole_numel()) *
                    c10::elementSize(io::detail::written_type(slice.tensor, dtype)));
  }
  const hf::WeightLayout layout(bytes, options.max_shard_size);
  const Share share = share_of(group, contents);
  std::map<std::string, const optim::ParameterSlice*> mine;
  for (const optim::ParameterSlice& slice : share.files.at("model")) mine.emplace(slice.name, &slice);

  // Rank 0's: the folder, if it is to appear as a whole, and what to remove when something fails.
  std::optional<AtomicDirectory> fresh;
  struct Leftovers {
    std::vector<std::filesystem::path> paths;
    ~Leftovers() {
      std::error_code ignored;
      for (const auto& path : paths) std::filesystem::remove(path, ignored);
    }
  } leftovers;
  const auto begun = on_all_ranks(group, [&] {
    if (group.rank() != 0) return std::string();
    std::filesystem::path target = folder;
    if (hf::detail::is_fresh(folder)) target = fresh.emplace(folder).path();
    ilme::detail::remove_unfinished(target, "model");
    const std::string suffix = concat(".unfinished-", ::getpid());
    for (const detail::ExportFile& file : detail::export_files(weights, layout, dtype, suffix)) {
      leftovers.paths.push_back(target / file.unfinished);
      const std::uint64_t size = file.header.size() + (file.entries.empty() ? 0 : file.entries.back().end);
      detail::SharedFile out(leftovers.paths.back(), size);
      out.write(0, file.header.data(), file.header.size());
      out.commit();
    }
    return Json{target.string(), suffix}.dump();
  });
  const Json begin = parse_json(begun.front(), "export of rank 0");
  const std::filesystem::path target = begin.at(0).get<std::string>();
  const auto files = detail::export_files(weights, layout, dtype, begin.at(1).get<std::string>());
  on_all_ranks(group, [&] {
    for (const detail::ExportFile& file : files) detail::write_elements(target, file, mine);
    return std::string();
  });
  on_all_ranks(group, [&] {
    if (group.rank() != 0) return std::string();
    for (const detail::ExportFile& file : files) {
      std::error_code code;
      std::filesystem::rename(target / file.unfinished, target / file.name, code);
      if (code) throw RunError((target / file.name).string(), ": cannot rename into place: ", code.message());
    }
    ilme::detail::sync_path(target);
    hf::finish_weights(target, layout, names);
    hf::detail::write_side_files(config, target, dtype, tokenizer_folder, options);
    if (fresh) fresh->commit();
    return std::string();
  });
}

}  // namespace ilme::checkpoint
