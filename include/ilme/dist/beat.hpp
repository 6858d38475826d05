/// What a rank reports about itself, and which rank is to blame by what all of them report. No threads, no clock: see
/// heartbeat.hpp for those.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/dist/peer.hpp>

namespace ilme::dist {

struct Beat {
  enum State { kRunning, kFinished, kFailed };  // failed: an error of its own ended the program

  std::uint64_t number = 0;  // counts up: a rank is alive while it does
  State state = kRunning;
  bool broken = false;                           // a collective failed here, and nobody knows yet why
  std::map<std::string, std::uint64_t> entered;  // by group: collectives that the rank has entered

  // The collective that the rank has waited for longest, if any.
  std::string group, collective;
  std::uint64_t waits_for = 0;  // its number in the group
  double waited = 0;            // seconds
  std::vector<int> members;     // of the group
};

inline std::string beat_text(const Beat& beat) {
  return Json{{"number", beat.number},       {"state", static_cast<int>(beat.state)},
              {"broken", beat.broken},       {"entered", beat.entered},
              {"group", beat.group},         {"collective", beat.collective},
              {"waits_for", beat.waits_for}, {"waited", beat.waited},
              {"members", beat.members}}
      .dump();
}

inline Beat parse_beat(const std::string& text) {
  const Json json = parse_json(text, "a rank's heartbeat in the store");
  Beat beat;
  beat.number = json.at("number");
  beat.state = static_cast<Beat::State>(json.at("state").get<int>());
  beat.broken = json.at("broken");
  beat.entered = json.at("entered").get<std::map<std::string, std::uint64_t>>();
  beat.group = json.at("group");
  beat.collective = json.at("collective");
  beat.waits_for = json.at("waits_for");
  beat.waited = json.at("waited");
  beat.members = json.at("members").get<std::vector<int>>();
  return beat;
}

/// A rank as another one sees it.
struct Seen {
  Beat beat;
  double silent = 0;  // seconds since its number last counted up
};

/// How long a rank may show no sign of life, and how long another may wait for it in a collective, in seconds: what is
/// left of the time-out is for the news to go round.
inline double silence_limit(double timeout, bool broken) { return broken ? timeout / 4 : timeout / 2; }
inline double waiting_limit(double timeout) { return timeout * 0.8; }

inline bool has_died(const ProcessState& state) {
  return state.state == '\0' || state.state == 'Z' || state.state == 'X';
}

inline std::string with_one_digit(double seconds) {
  const auto tenths = static_cast<long>(seconds * 10 + 0.5);
  return concat(tenths / 10, ".", tenths % 10);
}

inline std::string silence_verdict(const Peer& peer, const Peer& self, double silent) {
  const char state = peer.state_seen_from(self).state;
  return concat(peer.name(), " has shown no sign of life for ", with_one_digit(silent), " s",
                state == 'T' ? ": it is stopped" : "");
}

inline std::string failure_verdict(const Peer& peer) { return peer.name() + " has ended with an error"; }

/// The line that names the rank that keeps the others from going on, or "". `seen` by rank.
inline std::string judge(const std::vector<Peer>& peers, const std::vector<Seen>& seen, const Peer& self,
                         double timeout) {
  bool broken = false;
  for (const Seen& one : seen) broken = broken || one.beat.broken;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const Seen& one = seen[rank];
    if (one.beat.state == Beat::kFailed) return failure_verdict(peers[rank]);
    if (one.beat.state != Beat::kRunning) continue;
    if (has_died(peers[rank].state_seen_from(self))) return concat(peers[rank].name(), " has died");
    if (one.silent > silence_limit(timeout, broken)) return silence_verdict(peers[rank], self, one.silent);
  }
  // A rank that waits in its turn, for yet another one, is not the first to blame.
  for (const bool blame_waiting : {false, true}) {
    for (std::size_t waiting = 0; waiting < seen.size(); ++waiting) {
      const Beat& beat = seen[waiting].beat;
      if (beat.state != Beat::kRunning || beat.waits_for == 0) continue;
      for (const int rank : beat.members) {
        const Beat& other = seen[rank].beat;
        const auto entered = other.entered.find(beat.group);
        if (entered != other.entered.end() && entered->second >= beat.waits_for) continue;
        const bool ended = other.state != Beat::kRunning;
        if (beat.waited < waiting_limit(timeout) && !(ended && beat.broken)) continue;
        if (!ended && other.waits_for != 0 && !blame_waiting) continue;
        return concat(peers[rank].name(), ended ? " has ended" : " hangs, or works for too long", ": rank ", waiting,
                      " has waited ", with_one_digit(beat.waited), " s for it in ", beat.collective, " (number ",
                      beat.waits_for, " of group ", beat.group, "; the time-out is ", with_one_digit(timeout), " s)");
      }
    }
  }
  return "";
}

}  // namespace ilme::dist
