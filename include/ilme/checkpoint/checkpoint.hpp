/// Training checkpoints that survive being killed: complete or not there, checked when read, rotated.
///
/// `<root>/step-00000010/` holds one safetensors file for each named group of tensors (one of each rank that has part
/// of it, where there are several), `state.json`, and `manifest.json` with the size and CRC-32 of all of them. The
/// folder is filled under a hidden name, by all ranks at once, and renamed at the end, so a crash leaves the older
/// checkpoints and a hidden folder, which the next save removes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ilme/checkpoint/agreement.hpp>
#include <ilme/checkpoint/manifest.hpp>
#include <ilme/checkpoint/share.hpp>
#include <ilme/checkpoint/sliced_tensors.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/core/json.hpp>
#include <ilme/dist/group.hpp>
#include <ilme/io/safetensors.hpp>

namespace ilme::checkpoint {

/// A checkpoint that was verified. Its tensors lie in read-only mapped memory: copy from them, whole or by any range,
/// whatever number of ranks wrote them.
struct Loaded {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::map<std::string, SlicedTensors> files;
  Json state;

  /// Throws InputError when the checkpoint has no such group.
  const SlicedTensors& file(const std::string& name) const {
    const auto found = files.find(name);
    if (found == files.end()) throw InputError(path.string(), ": the checkpoint holds no ", name, ".safetensors");
    return found->second;
  }
};

using Warn = std::function<void(const std::string&)>;

/// Which checkpoints of a run stay.
struct Retention {
  std::int64_t keep_last = 0;  ///< so many of the newest; 0: all of them
  std::string keep_best = {};  ///< and the one with the best value of this metric; empty: none
  bool higher_is_better = false;

  bool better(double value, double than) const { return higher_is_better ? value > than : value < than; }
};

/// The checkpoints of one root folder. One run at a time saves into a root; its ranks, on whatever hosts, must all see
/// the folder.
class CheckpointStore {
 public:
  /// Creates nothing yet. Takes a communicator of its own over the ranks of `group`, so that it may be used on another
  /// thread than the training: collective. All functions but root() and latest_step() are collective too.
  explicit CheckpointStore(std::filesystem::path root, Retention keep, const dist::Group& group = {})
      : root_(std::move(root)), keep_(std::move(keep)), group_(group.duplicate()) {
    if (keep_.keep_last < 0) {
      throw InputError("checkpoints to keep: ", keep_.keep_last, ", expected 0 (all) or more");
    }
  }
  explicit CheckpointStore(std::filesystem::path root, std::int64_t keep_last = 0, const dist::Group& group = {})
      : CheckpointStore(std::move(root), Retention{.keep_last = keep_last}, group) {}

  const std::filesystem::path& root() const noexcept { return root_; }
  const Retention& retention() const noexcept { return keep_; }

  /// What this rank writes of the contents; the tensors are theirs.
  Share share(const Contents& contents) const { return share_of(group_, contents); }

  /// Writes a checkpoint; on return it is on the disk. One that exists for the step is replaced in one move. Older ones
  /// of this run that need not be kept are removed afterwards; another run's are left alone. `metrics` are figures of
  /// the saved weights (rank 0's count, and those that are finite). When writing fails on a rank (RunError: a full
  /// disk), all ranks throw its error and nothing is changed.
  void save(std::int64_t step, const Contents& contents, const std::map<std::string, double>& metrics = {}) {
    save(step, share(contents), metrics);
  }
  void save(std::int64_t step, const Share& share, const std::map<std::string, double>& metrics = {}) {
    if (step < 0) throw InputError("checkpoint step ", step, " is negative");
    std::optional<AtomicDirectory> folder;  // rank 0's
    Manifest manifest{.step = step, .run = run_, .metrics = metrics, .files = {}};
    std::erase_if(manifest.metrics, [](const auto& metric) { return !std::isfinite(metric.second); });
    const std::filesystem::path hidden = root_ / on_all_ranks(group_, [&]() -> std::string {
                                                   if (group_.rank() != 0) return {};
                                                   begin_save(manifest);
                                                   folder.emplace(root_ / step_name(step));
                                                   return folder->path().filename().string();
                                                 }).front();
    const auto listed = on_all_ranks(group_, [&] { return write_share(hidden, share).dump(); });
    run_ = on_all_ranks(group_, [&]() -> std::string {
             if (group_.rank() != 0) return {};
             for (const std::string& text : listed) {
               for (const Json& file : parse_json(text, "files of a rank")) {
                 manifest.files.push_back(file_of_json(file, "files of a rank"));
                 require_file(hidden, manifest.files.back());
               }
             }
             write_json(hidden / kStateName, share.state);
             manifest.files.push_back(describe_file(hidden / kStateName));
             write_manifest(hidden, manifest);
             folder->commit();
             rotate(manifest);
             return manifest.run;
           }).front();
  }

  /// The newest checkpoint that is whole. Each damaged one that is passed over, by all ranks, is reported on rank 0
  /// through `warn` with the file and the fault; folders that are no checkpoints are ignored. Nothing when the root
  /// holds none at all; InputError when all that it holds are damaged, so that a run never starts anew by accident. The
  /// store goes on as the loaded checkpoint's run.
  std::optional<Loaded> load_latest(const Warn& warn) {
    std::string first_fault;
    auto loaded = load_newest(warn, first_fault, [](const Manifest&) { return true; });
    if (!loaded && !first_fault.empty()) {
      throw InputError(root_.string(), ": no usable checkpoint, all are damaged (", first_fault,
                       "); remove them or choose another folder to start anew");
    }
    return loaded;
  }

  /// The newest whole checkpoint of this run, the one that saves into the store or was loaded from it, from before
  /// `step`; nothing when there is none. Damaged ones are reported as load_latest does.
  std::optional<Loaded> load_before(std::int64_t step, const Warn& warn) {
    std::string ignored;
    return load_newest(warn, ignored, [&](const Manifest& manifest) {
      return !run_.empty() && manifest.run == run_ && manifest.step < step;
    });
  }

  /// The checkpoint in `folder`, which may lie anywhere. Throws InputError when it is damaged or none.
  Loaded load(const std::filesystem::path& folder) {
    return open(folder.has_filename() ? folder : folder.parent_path());
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

  /// The newest whole checkpoint that rank 0's `wanted(manifest)` accepts. Faults are reported on rank 0, and the first
  /// one is noted on all ranks.
  template <class Wanted>
  std::optional<Loaded> load_newest(const Warn& warn, std::string& first_fault, Wanted&& wanted) {
    const auto report = [&](const std::string& fault) {
      if (first_fault.empty()) first_fault = fault;
      if (warn && group_.rank() == 0) warn("skipping a damaged checkpoint: " + fault);
    };
    const std::string listed = on_all_ranks(group_, [&]() -> std::string {
                                 Json names = Json::array();
                                 if (group_.rank() != 0) return {};
                                 ilme::detail::put_back_replaced(root_, "step-");
                                 for (const Found& found : scan(report)) {
                                   if (wanted(found.manifest)) names.push_back(found.path.filename().string());
                                 }
                                 return Json{first_fault, names}.dump();
                               }).front();
    const Json list = parse_json(listed, "list of checkpoints");
    first_fault = list.at(0).get<std::string>();
    for (const Json& name : list.at(1)) {
      try {
        return open(root_ / name.get<std::string>());
      } catch (const InputError& error) {
        report(error.what());
      }
    }
    return std::nullopt;
  }

  static std::string new_run_name() {
    std::random_device device;
    const std::uint64_t bits = static_cast<std::uint64_t>(device()) << 32 | device();
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(bits));
    return text;
  }

  /// Makes the root ready and numbers the save.
  void begin_save(Manifest& manifest) const {
    ilme::detail::create_folders(root_);
    ilme::detail::remove_unfinished(root_, "step-");
    manifest.sequence = 1;
    for (const Found& found : scan(nullptr)) {
      manifest.sequence = std::max(manifest.sequence, found.manifest.sequence + 1);
    }
    if (manifest.run.empty()) manifest.run = new_run_name();
  }

  /// Writes this rank's files and gives their sizes and checksums.
  Json write_share(const std::filesystem::path& folder, const Share& share) const {
    if (!std::filesystem::is_directory(folder)) {
      throw RunError(folder.string(), ": the folder that rank 0 has made is not there on host ", detail::host_name(),
                     "; checkpoints of several ranks need a folder that all their hosts share");
    }
    Json files = Json::array();
    for (const auto& [name, slices] : share.files) {
      if (slices.empty() && group_.rank() != 0) continue;
      const auto path = folder / share_file_name(name, group_.rank(), group_.size());
      save_slices(path, slices);
      files.push_back(file_json(describe_file(path)));
    }
    return files;
  }

  static void require_file(const std::filesystem::path& folder, const Manifest::File& file) {
    std::error_code code;
    const auto size = std::filesystem::file_size(folder / file.name, code);
    if (code || size != file.size) {
      throw RunError((folder / file.name).string(), ": is not there as its rank has written it (",
                     code ? code.message() : concat(size, " bytes, expected ", file.size), ")");
    }
  }

  /// Opens a checkpoint on every rank. Each file's checksum is verified by one of them.
  Loaded open(const std::filesystem::path& folder) {
    Loaded loaded;
    Manifest manifest;
    const std::vector<Outcome> outcomes = outcomes_on_ranks(group_, [&] {
      if (!std::filesystem::is_directory(folder)) throw InputError(folder.string(), ": no such checkpoint folder");
      manifest = read_manifest(folder);
      loaded = opened(folder, manifest);
      return concat(manifest.run, " ", manifest.sequence);
    });
    if (const Outcome failed = first_fault(outcomes); !failed.fault.empty()) failed.raise();
    for (const Outcome& outcome : outcomes) {
      if (outcome.text != outcomes.front().text) {
        throw InputError(folder.string(), ": is not the same on all ranks; all hosts must share the folder");
      }
    }
    std::error_code ignored;
    if (std::filesystem::equivalent(ilme::detail::parent_folder(folder), root_, ignored)) run_ = manifest.run;
    return loaded;
  }

  Loaded opened(const std::filesystem::path& folder, const Manifest& manifest) const {
    std::vector<std::uint64_t> load(static_cast<std::size_t>(group_.size()));
    for (const Manifest::File& file : manifest.files) {
      const auto reader = std::min_element(load.begin(), load.end());
      *reader += file.size;
      if (reader - load.begin() == group_.rank()) verify_file(folder, file);
    }
    Loaded loaded{.path = folder, .step = manifest.step, .files = {}, .state = {}};
    std::map<std::string, std::vector<io::SafetensorsFile>> groups;
    for (const Manifest::File& file : manifest.files) {
      if (file.name == kStateName) {
        loaded.state = read_json(folder / file.name);
      } else {
        groups[file.name.substr(0, file.name.find('.'))].emplace_back(folder / file.name);
      }
    }
    for (auto& [name, files] : groups) loaded.files.emplace(name, SlicedTensors(std::move(files)));
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

  /// Removes this run's checkpoints that need not be kept, never the one just saved.
  void rotate(const Manifest& saved) const {
    if (keep_.keep_last == 0) return;
    std::vector<Found> mine = scan(nullptr);
    std::erase_if(mine, [&](const Found& found) { return found.manifest.run != saved.run; });
    const auto best = best_of(mine);
    std::int64_t kept = 0;
    for (const Found& found : mine) {
      const std::uint64_t sequence = found.manifest.sequence;
      if (++kept <= keep_.keep_last || sequence == saved.sequence || sequence == best) continue;
      // Renamed first: a removal that is interrupted must not look like a damaged checkpoint.
      const auto hidden = ilme::detail::unfinished_name(found.path);
      std::error_code code;
      std::filesystem::rename(found.path, hidden, code);
      if (!code) std::filesystem::remove_all(hidden, code);
    }
  }

  /// The sequence number of the best checkpoint by the metric to keep; the newest of equal ones.
  std::optional<std::uint64_t> best_of(const std::vector<Found>& newest_first) const {
    std::optional<std::uint64_t> best;
    double best_value = 0;
    for (const Found& found : newest_first) {
      const auto metric = found.manifest.metrics.find(keep_.keep_best);
      if (metric == found.manifest.metrics.end()) continue;
      if (best && !keep_.better(metric->second, best_value)) continue;
      best = found.manifest.sequence;
      best_value = metric->second;
    }
    return best;
  }

  std::filesystem::path root_;
  Retention keep_;
  dist::Group group_;
  std::string run_;
};

}  // namespace ilme::checkpoint
