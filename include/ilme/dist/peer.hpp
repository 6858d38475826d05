/// A rank as a process of a host: what messages name, and whether it is alive.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>

namespace ilme::dist {

/// What Linux tells about a process: '\0' when there is none.
struct ProcessState {
  char state = '\0';          // as in proc(5): R, S, T (stopped), Z (ended), ...
  std::uint64_t started = 0;  // in clock ticks after boot: another process that got the same id has another
};

inline ProcessState process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  std::string skipped;
  fields >> result.state;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  fields >> result.started;
  return result;
}

struct Peer {
  int rank = 0;
  std::string host;
  int pid = 0;
  std::uint64_t started = 0;
  std::string machine;  // equal for processes that see each other under /proc

  std::string name() const { return concat("rank ", rank, " (host ", host, ", pid ", pid, ")"); }

  /// The process's state if it is on `other`'s machine; else it is taken to run.
  ProcessState state_seen_from(const Peer& other) const {
    if (machine.empty() || machine != other.machine) return {'R', started};
    const ProcessState found = process_state(pid);
    return found.started == started ? found : ProcessState{};
  }
};

/// This process.
inline Peer this_peer(int rank) {
  Peer peer;
  peer.rank = rank;
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  peer.host = host;
  peer.pid = static_cast<int>(::getpid());
  peer.started = process_state(peer.pid).started;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> peer.machine;
  std::error_code error;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  peer.machine = error || peer.started == 0 ? "" : peer.machine + space.string();
  return peer;
}

inline std::string peer_text(const Peer& peer) {
  return Json{
      {"rank", peer.rank}, {"host", peer.host}, {"pid", peer.pid}, {"started", peer.started}, {"machine", peer.machine}}
      .dump();
}

inline Peer parse_peer(const std::string& text) {
  const Json json = parse_json(text, "a rank's entry in the store");
  return {json.at("rank"), json.at("host"), json.at("pid"), json.at("started"), json.at("machine")};
}

}  // namespace ilme::dist
