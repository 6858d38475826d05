/// Finds out which rank of a run has died, stopped or hangs, and ends this one.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ilme/core/error.hpp>
#include <ilme/dist/beat.hpp>
#include <ilme/dist/observer.hpp>
#include <ilme/dist/peer.hpp>

namespace ilme::dist {

struct HeartbeatOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// Called with the line that says who is to blame, before the process ends at once with exit code 1.
  std::function<void(const std::string&)> report;
  std::string store_name;                  // for messages; "" where rank 0 serves it
  c10::intrusive_ptr<c10d::Store> served;  // the store's server, if it is in this process: it goes last
};

/// Reports to the store that this rank is alive and which collectives it has come to. Rank 0 reads all reports and
/// gives a verdict when one rank keeps the others waiting; every rank watches the processes of its own host, and
/// whether the store answers. A verdict becomes the message of this rank's failed collectives; if the program does not
/// end by that, because it waits for something else, it is ended.
///
/// Two threads: one talks to the store, which can block for ever when the store's process is stopped; the other watches
/// the first.
class Heartbeat : public Observer {
 public:
  /// `store` is a connection that nobody else uses. Every rank has put announce() into the store before.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, std::vector<Peer> peers, int rank, HeartbeatOptions options)
      : store_(std::move(store)),
        peers_(std::move(peers)),
        rank_(rank),
        options_(std::move(options)),
        interval_(std::clamp<Duration>(options_.timeout / 20, std::chrono::milliseconds(50), std::chrono::seconds(1))),
        seen_(peers_.size()),
        heard_(peers_.size(), Clock::now()),
        last_round_(Clock::now()),
        exceptions_(std::uncaught_exceptions()),
        talker_([this] { talk(); }),
        watcher_([this] { watch(); }) {}
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// The program ends, or the world goes. Rank 0 waits for the others: it judges, and its store serves them.
  ~Heartbeat() override {
    std::unique_lock lock(mutex_);
    const bool own_error = std::uncaught_exceptions() > exceptions_ && verdict_.empty();
    beat_.state = own_error ? Beat::kFailed : Beat::kFinished;
    changed_.notify_all();
    if (rank_ == 0) {
      const auto all_ended = [&] { return others_ended_; };
      if (!own_error) changed_.wait(lock, [&] { return others_ended_ || !verdict_.empty(); });
      changed_.wait_for(lock, 4 * interval_, all_ended);  // the others get to know
    }
    stop_ = true;
    lock.unlock();
    changed_.notify_all();
    talker_.join();
    watcher_.join();
  }

  /// A rank's first report.
  static void announce(c10d::Store& store, int rank) { store.set(key(rank), beat_text({})); }

  std::uint64_t enter(const std::string& group, const std::vector<int>& ranks) override {
    const std::lock_guard lock(mutex_);
    members_.try_emplace(group, ranks);
    return ++beat_.entered[group];
  }

  void waiting(const std::string& group, std::uint64_t number, const char* collective) override {
    const std::lock_guard lock(mutex_);
    waits_.push_back({group, number, collective, Clock::now()});
  }

  void waited(const std::string& group, std::uint64_t number) override {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(waits_.begin(), waits_.end(),
                                    [&](const Wait& wait) { return wait.group == group && wait.number == number; });
    if (found != waits_.end()) waits_.erase(found);
  }

  std::string explain(const std::string& error) override {
    std::unique_lock lock(mutex_);
    beat_.broken = true;
    changed_.notify_all();
    changed_.wait_for(lock, options_.timeout / 2, [&] { return !verdict_.empty() || stop_; });
    taken_ = true;
    return verdict_.empty() ? error + "; no rank is known to have died" : verdict_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;
  struct Wait {
    std::string group;
    std::uint64_t number;
    const char* collective;
    Clock::time_point since;
  };

  static std::string key(int rank) { return "beat/" + std::to_string(rank); }
  static constexpr const char* kVerdict = "verdict";
  static constexpr std::chrono::milliseconds kStep{100};  // between looks of a thread that has nothing to ask the store

  static double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
  double timeout() const { return seconds(options_.timeout); }
  const Peer& self() const { return peers_[rank_]; }

  void talk() {
    std::unique_lock lock(mutex_);
    for (bool last = false; !last;) {
      last = stop_;
      const Beat::State state = beat_.state;
      const bool broken = beat_.broken;
      const std::string report = beat_text(next_beat());
      lock.unlock();
      std::string verdict;
      bool ended = true;
      try {
        store_->set(key(rank_), report);
        if (!last) verdict = find_verdict();
        for (const Peer& peer : peers_) {
          const bool runs = seen_[peer.rank].beat.state == Beat::kRunning && !has_died(peer.state_seen_from(self()));
          ended = ended && !runs;
        }
      } catch (const std::exception&) {
        // Of a process that is killed the connections go first.
        for (int i = 0; i < 10 && self().machine == peers_[0].machine; ++i) {
          if (has_died(peers_[0].state_seen_from(self()))) break;
          std::this_thread::sleep_for(kStep);
        }
        verdict = store_verdict("does not answer");
      }
      lock.lock();
      last_round_ = Clock::now();
      decide(verdict);
      others_ended_ = ended;
      talked_ = last;
      changed_.notify_all();
      const Duration pause = state == Beat::kRunning ? interval_ : std::min<Duration>(interval_, kStep);
      if (!last)
        changed_.wait_for(lock, pause, [&] { return stop_ || beat_.state != state || beat_.broken != broken; });
    }
  }

  /// With the lock.
  const Beat& next_beat() {
    ++beat_.number;
    beat_.waits_for = 0;
    if (!waits_.empty()) {
      const Wait& longest = waits_.front();
      beat_.group = longest.group;
      beat_.collective = longest.collective;
      beat_.waits_for = longest.number;
      beat_.waited = seconds(Clock::now() - longest.since);
      beat_.members = members_[longest.group];
    }
    return beat_;
  }

  /// A verdict that another rank has found, or what this one finds; then the others learn it.
  std::string find_verdict() {
    if (rank_ == 0) {
      for (const Peer& peer : peers_) look_at(peer.rank);
    }
    if (store_->check({kVerdict})) return store_->get_to_str(kVerdict);
    std::string found;
    if (rank_ == 0) {
      found = judge(peers_, seen_, self(), timeout());
    } else {
      look_at(0);
      if (seen_[0].beat.state == Beat::kFailed) found = failure_verdict(peers_[0]);
      if (seen_[0].beat.state == Beat::kRunning && seen_[0].silent > silence_limit(timeout(), false)) {
        found = silence_verdict(peers_[0], self(), seen_[0].silent);
      }
    }
    for (const Peer& peer : peers_) {
      if (!found.empty() || !has_died(peer.state_seen_from(self()))) continue;
      look_at(peer.rank);  // what it reported last, now that it reports no more
      if (seen_[peer.rank].beat.state == Beat::kRunning) found = peer.name() + " has died";
    }
    return found.empty() ? found : store_->compareSet(kVerdict, "", found);
  }

  void look_at(int rank) {
    Beat beat = parse_beat(store_->get_to_str(key(rank)));
    const Clock::time_point now = Clock::now();
    if (beat.number != seen_[rank].beat.number) heard_[rank] = now;
    seen_[rank] = {std::move(beat), seconds(now - heard_[rank])};
  }

  std::string store_verdict(const std::string& trouble) const {
    if (!options_.store_name.empty()) return concat(options_.store_name, " ", trouble);
    const ProcessState state = peers_[0].state_seen_from(self());
    if (has_died(state)) return peers_[0].name() + " has died";
    return concat(peers_[0].name(), state.state == 'T' ? " is stopped" : " is gone", ": its store ", trouble);
  }

  /// With the lock.
  void decide(const std::string& verdict) {
    if (verdict.empty() || !verdict_.empty()) return;
    verdict_ = verdict;
    decided_ = Clock::now();
    changed_.notify_all();
  }

  void watch() {
    const Duration step = std::min<Duration>(interval_, kStep);
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, step, [&] { return talked_; })) {
      const Clock::time_point now = Clock::now();
      const bool stuck = seconds(now - last_round_) > silence_limit(timeout(), false);
      if (stuck) decide(store_verdict("has not answered for " + with_one_digit(seconds(now - last_round_)) + " s"));
      if (verdict_.empty() || (beat_.state != Beat::kRunning && !stuck)) continue;
      // The program gets a moment to end in its own way; longer once it has the message; the store's server goes last.
      Duration grace = std::clamp<Duration>(options_.timeout / 20, step, std::chrono::seconds(1));
      if (taken_) grace = std::clamp<Duration>(options_.timeout / 5, grace, std::chrono::seconds(10));
      if (options_.served) grace += 2 * interval_;
      if (now - decided_ < grace) continue;
      if (options_.report) options_.report(verdict_);
      ::_exit(1);
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::vector<Peer> peers_;
  const int rank_;
  const HeartbeatOptions options_;
  const Duration interval_;

  // The talker's.
  std::vector<Seen> seen_;
  std::vector<Clock::time_point> heard_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Beat beat_;
  std::map<std::string, std::vector<int>> members_;  // by group
  std::list<Wait> waits_;                            // the oldest first
  std::string verdict_;
  Clock::time_point decided_, last_round_;
  bool taken_ = false;         // the program has the verdict
  bool others_ended_ = false;  // and this one, as the store has it
  bool stop_ = false;          // the talker shall end
  bool talked_ = false;        // and has
  const int exceptions_;

  std::thread talker_, watcher_;  // last: they use all the others
};

}  // namespace ilme::dist
