/// Training checkpoints that survive being killed: complete or not there, checked when read, rotated.
///
/// `<root>/step-00000010/` holds one safetensors file for each named group of tensors, `state.json`, and
/// `manifest.json` with the size and CRC-32 of all of them. The folder is filled under a hidden name and renamed at the
/// end, so a crash leaves the older checkpoints and a hidden folder, which the next save removes.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/checkpoint/manifest.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/io/safetensors.hpp>

namespace ilme::checkpoint {

/// What a checkpoint holds: groups of tensors by name ("model" becomes model.safetensors), and everything else as JSON
/// (numbers keep all their bits; JSON has no NaN or infinity, they read back as null).
struct Contents {
  std::map<std::string, io::NamedTensors> files;
  Json state = Json::object();
};

/// A checkpoint that was verified. Its tensors lie in read-only mapped memory: copy from them.
struct Loaded {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::map<std::string, io::SafetensorsFile> files;
  Json state;

  /// Throws InputError when the checkpoint has no such group.
  const io::SafetensorsFile& file(const std::string& name) const {
    const auto found = files.find(name);
    if (found == files.end()) throw InputError(path.string(), ": the checkpoint holds no ", name, ".safetensors");
    return found->second;
  }
};

using Warn = std::function<void(const std::string&)>;

/// The checkpoints of one root folder. One process at a time saves into a root.
class CheckpointStore {
 public:
  /// Keeps the newest `keep_last` checkpoints of this run (0: all of them). Creates nothing yet.
  explicit CheckpointStore(std::filesystem::path root, std::int64_t keep_last = 0)
      : root_(std::move(root)), keep_last_(keep_last) {
    if (keep_last < 0) throw InputError("checkpoints to keep: ", keep_last, ", expected 0 (all) or more");
  }

  const std::filesystem::path& root() const noexcept { return root_; }

  /// Writes a checkpoint; on return it is on the disk. One that exists for the step is replaced in one move. Older ones
  /// of this run beyond keep_last are removed afterwards; another run's are left alone. Throws RunError when writing
  /// fails (a full disk): then nothing is changed.
  void save(std::int64_t step, const Contents& contents) {
    if (step < 0) throw InputError("checkpoint step ", step, " is negative");
    ilme::detail::create_folders(root_);
    remove_leftovers();
    Manifest manifest;
    manifest.step = step;
    manifest.sequence = 1;
    for (const Found& found : scan(nullptr)) {
      manifest.sequence = std::max(manifest.sequence, found.manifest.sequence + 1);
    }
    if (run_.empty()) run_ = new_run_name();
    manifest.run = run_;

    AtomicDirectory folder(root_ / step_name(step));
    std::vector<std::string> names;
    for (const auto& [name, tensors] : contents.files) {
      if (name.empty() || name.find_first_of("/\\") != std::string::npos || name.front() == '.') {
        throw InputError("checkpoint file name \"", name, "\" is not a plain name");
      }
      names.push_back(name + ".safetensors");
      io::save_safetensors(folder.path() / names.back(), tensors);
    }
    names.emplace_back(kStateName);
    write_json(folder.path() / kStateName, contents.state);
    write_manifest(folder.path(), manifest, names);
    folder.commit();
    rotate(manifest.sequence);
  }

  /// The newest checkpoint that is whole. Each damaged one that is passed over is reported through `warn` with the file
  /// and the fault; folders that are no checkpoints are ignored. Nothing when the root holds none at all; InputError
  /// when all that it holds are damaged, so that a run never starts anew by accident. The store goes on as the loaded
  /// checkpoint's run.
  std::optional<Loaded> load_latest(const Warn& warn) {
    std::string first_fault;
    const auto report = [&](const std::string& fault) {
      if (first_fault.empty()) first_fault = fault;
      if (warn) warn("skipping a damaged checkpoint: " + fault);
    };
    for (const Found& found : scan(report)) {
      try {
        return open(found.path, found.manifest);
      } catch (const InputError& error) {
        report(error.what());
      }
    }
    if (!first_fault.empty()) {
      throw InputError(root_.string(), ": no usable checkpoint, all are damaged (", first_fault,
                       "); remove them or choose another folder to start anew");
    }
    return std::nullopt;
  }

  /// The checkpoint in `folder`, which may lie anywhere. Throws InputError when it is damaged or none.
  Loaded load(const std::filesystem::path& folder) {
    const auto clean = folder.has_filename() ? folder : folder.parent_path();
    if (!std::filesystem::is_directory(clean)) throw InputError(folder.string(), ": no such checkpoint folder");
    return open(clean, read_manifest(clean));
  }

  /// The step of the newest checkpoint that looks complete (its files are not read); nothing when there is none.
  std::optional<std::int64_t> latest_step() const {
    const auto found = scan(nullptr);
    return found.empty() ? std::nullopt : std::optional(found.front().manifest.step);
  }

 private:
  static constexpr const char* kStateName = "state.json";

  struct Found {
    std::filesystem::path path;
    Manifest manifest;
  };

  static std::string new_run_name() {
    std::random_device device;
    const std::uint64_t bits = static_cast<std::uint64_t>(device()) << 32 | device();
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
    return text;
  }

  Loaded open(const std::filesystem::path& folder, const Manifest& manifest) {
    verify_files(folder, manifest);
    Loaded loaded;
    loaded.path = folder;
    loaded.step = manifest.step;
    for (const Manifest::File& file : manifest.files) {
      if (file.name == kStateName) {
        loaded.state = read_json(folder / file.name);
      } else {
        const std::filesystem::path name = file.name;
        loaded.files.emplace(name.stem().string(), io::SafetensorsFile(folder / name));
      }
    }
    std::error_code ignored;
    if (std::filesystem::equivalent(ilme::detail::parent_folder(folder), root_, ignored)) run_ = manifest.run;
    return loaded;
  }

  /// All step folders with a good manifest, newest save first. A step folder that has lost its manifest is reported;
  /// one without any file of ours is somebody else's.
  std::vector<Found> scan(const Warn& report) const {
    std::vector<Found> all;
    std::error_code code;
    std::vector<std::filesystem::path> folders;
    for (std::filesystem::directory_iterator it(root_, code), end; !code && it != end; it.increment(code)) {
      if (step_of_name(it->path().filename().string()) && it->is_directory(code)) folders.push_back(it->path());
    }
    if (code && code != std::errc::no_such_file_or_directory) {
      throw InputError(root_.string(), ": cannot list checkpoints: ", code.message());
    }
    std::sort(folders.begin(), folders.end());
    for (const auto& folder : folders) {
      try {
        all.push_back({folder, read_manifest(folder)});
      } catch (const InputError& error) {
        if (report && holds_our_files(folder)) report(error.what());
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Found& a, const Found& b) { return a.manifest.sequence > b.manifest.sequence; });
    return all;
  }

  static bool holds_our_files(const std::filesystem::path& folder) {
    std::error_code code;
    for (std::filesystem::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
      const auto name = it->path().filename();
      if (name == kManifestName || name == kStateName || name.extension() == ".safetensors") return true;
    }
    return false;
  }

  /// Removes this run's checkpoints beyond the newest keep_last, never the one just saved.
  void rotate(std::uint64_t just_saved) const {
    if (keep_last_ == 0) return;
    std::int64_t kept = 0;
    for (const Found& found : scan(nullptr)) {
      if (found.manifest.run != run_) continue;
      if (++kept <= keep_last_ || found.manifest.sequence == just_saved) continue;
      // Renamed first: a removal that is interrupted must not look like a damaged checkpoint.
      const auto hidden = ilme::detail::unfinished_name(found.path);
      std::error_code code;
      std::filesystem::rename(found.path, hidden, code);
      if (!code) std::filesystem::remove_all(hidden, code);
    }
  }

  /// Removes hidden ".step-*.unfinished-<pid>" folders of processes that are gone.
  void remove_leftovers() const {
    static constexpr std::string_view kMark = ".unfinished-";
    std::error_code code;
    std::vector<std::filesystem::path> leftovers;
    for (std::filesystem::directory_iterator it(root_, code), end; !code && it != end; it.increment(code)) {
      const std::string name = it->path().filename().string();
      const auto mark = name.find(kMark);
      if (mark == std::string::npos || !name.starts_with(".step-")) continue;
      pid_t owner = 0;
      std::from_chars(name.data() + mark + kMark.size(), name.data() + name.size(), owner);
      const bool alive = owner > 0 && (::kill(owner, 0) == 0 || errno == EPERM);
      if (!alive || owner == ::getpid()) leftovers.push_back(it->path());
    }
    for (const auto& leftover : leftovers) std::filesystem::remove_all(leftover, code);
  }

  std::filesystem::path root_;
  std::int64_t keep_last_;
  std::string run_;
};

}  // namespace ilme::checkpoint
