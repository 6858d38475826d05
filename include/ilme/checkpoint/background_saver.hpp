/// Saving while training goes on: from copies, on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <string>
#include <utility>

#include <ilme/checkpoint/checkpoint.hpp>
#include <ilme/checkpoint/share.hpp>
#include <ilme/core/error.hpp>
#include <ilme/core/memory_size.hpp>
#include <ilme/core/resident_memory.hpp>

namespace ilme::checkpoint {

/// When a save goes on in the background. `automatic`: when the host has the memory for the copies.
enum class Background { automatic, always, never };

/// "auto", "always" or "never"; InputError for anything else.
inline Background parse_background(const std::string& name) {
  if (name == "auto") return Background::automatic;
  if (name == "always") return Background::always;
  if (name == "never") return Background::never;
  throw InputError("saving in the background \"", name, "\": expected auto, always or never");
}

/// Saves into a store; one save at a time is under way. In the background it holds, until the save is done, a copy of
/// what this rank writes: parameters and optimizer state, 12 to 16 bytes a parameter of the rank's shards. Ranks need
/// not choose alike: one may write at once while the others go on.
class BackgroundSaver {
 public:
  explicit BackgroundSaver(CheckpointStore& store, Background background = Background::automatic)
      : store_(store), background_(background) {}
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;
  /// Waits for the save that is under way; its error is lost.
  ~BackgroundSaver() = default;

  /// Waits for the last save, and throws its error. Then saves as CheckpointStore does, or copies the tensors and
  /// returns. Collective.
  void save(std::int64_t step, const Contents& contents, const std::map<std::string, double>& metrics = {}) {
    wait();
    Share share = store_.share(contents);
    if (background_ == Background::never || (background_ == Background::automatic && !fits(share))) {
      return store_.save(step, share, metrics);
    }
    share.copy_tensors();
    running_ = std::async(std::launch::async,
                          [this, step, share = std::move(share), metrics] { store_.save(step, share, metrics); });
  }

  /// Returns when nothing is under way; throws the error of the last save if it failed.
  void wait() {
    if (running_.valid()) running_.get();
  }
  bool done() const {
    return !running_.valid() || running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  /// Whether this host has room for all its ranks' copies, beside what a step takes: at the end of a step, as much as
  /// the process once had more than now.
  static bool fits(const Share& share) {
    const auto available = available_memory();
    if (!available) return false;
    const auto now = resident_bytes().value_or(0), peak = resident_peak_bytes().value_or(0);
    const auto copies = static_cast<std::uint64_t>(share.host_bytes);
    const auto steps = static_cast<std::uint64_t>(share.host_ranks) * (peak > now ? peak - now : 0);
    return *available > copies + copies / 8 + steps;
  }

  CheckpointStore& store_;
  Background background_;
  std::future<void> running_;
};

}  // namespace ilme::checkpoint
