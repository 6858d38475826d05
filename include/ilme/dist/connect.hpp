/// Connects the ranks of a run.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <ilme/core/error.hpp>
#include <ilme/dist/environment.hpp>
#include <ilme/dist/gloo.hpp>
#include <ilme/dist/heartbeat.hpp>
#include <ilme/dist/local_address.hpp>
#include <ilme/dist/nccl.hpp>
#include <ilme/dist/peer.hpp>
#include <ilme/dist/world.hpp>

namespace ilme::dist {

struct WorldOptions {
  /// A rank that dies or hangs ends all others within this time. No rank may keep the others waiting in a collective
  /// for longer, whatever it does.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// How long ranks wait for the others at the start: one that is late cannot be told from one that died before it
  /// came.
  std::chrono::milliseconds start_timeout = std::chrono::seconds(300);
  /// Gets the one line that names the rank at fault, before the process ends with exit code 1. From another thread,
  /// while the program waits or works.
  std::function<void(const std::string& line)> report = [](const std::string& line) {
    const std::string text = "error: " + line + "\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
  };
};

namespace detail {

inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

inline c10::intrusive_ptr<c10d::Store> open_store(const Environment& environment, bool server,
                                                  const WorldOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(environment.port);
  store.isServer = server;
  store.waitWorkers = false;
  store.timeout = server ? options.start_timeout : options.start_timeout / 2;  // c10d tries IPv6, then IPv4 as long
  try {
    return c10::make_intrusive<c10d::PrefixStore>(environment.run,
                                                  c10::make_intrusive<c10d::TCPStore>(environment.address, store));
  } catch (const std::exception& error) {
    if (server) {
      throw RunError("rank 0 cannot serve the store on port ", environment.port, ": ", first_line(error),
                     "; set MASTER_PORT to a free port");
    }
    throw RunError("rank ", environment.rank, " cannot reach the store at ", environment.address, ":", environment.port,
                   ": ", first_line(error), "; is rank 0 running there (MASTER_ADDR), and is the port open?");
  }
}

/// Every rank says who it is, and hears who the others are.
inline std::vector<Peer> meet(c10d::Store& store, const Environment& environment, const WorldOptions& options) {
  const auto key = [](int rank) { return "peer/" + std::to_string(rank); };
  Heartbeat::announce(store, environment.rank);
  store.set(key(environment.rank), peer_text(this_peer(environment.rank)));
  std::vector<std::string> keys;
  for (int rank = 0; rank < environment.size; ++rank) keys.push_back(key(rank));
  try {
    store.wait(keys, options.start_timeout);
  } catch (const std::exception& error) {
    std::string missing;
    for (int rank = 0; rank < environment.size && missing.size() < 60; ++rank) {
      if (!store.check({key(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    throw RunError("rank ", environment.rank, ": of ", environment.size, " ranks (", environment.launcher,
                   ") these have not come within ", options.start_timeout.count() / 1000, " s: ", missing,
                   "; was the program started on all of them?");
  }
  std::vector<Peer> peers;
  for (const std::string& name : keys) peers.push_back(parse_peer(store.get_to_str(name)));
  return peers;
}

}  // namespace detail

/// The run that the environment describes: finds the other ranks through a TCP store that rank 0 (or torchrun's agent)
/// serves, connects to them over Gloo (and NCCL), and watches over them until the last of the world's groups goes.
/// Throws InputError for a malformed environment, RunError when the ranks do not find each other.
inline World connect(const WorldOptions& options = {}, const Environment& environment = read_environment()) {
  World world;
  world.rank = environment.rank;
  world.size = environment.size;
  world.local_rank = environment.local_rank;
  world.local_size = environment.local_size;
  world.launcher = environment.launcher;
  if (world.size == 1) return world;

  // Where a peer is lost, c10d logs many lines with stack traces; what there is to say is said in one.
  if (!process_variable("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 3);

  // c10d's record of collectives races where several threads have groups, as training and saving do (thread_ranks.hpp).
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);

  const bool server = world.rank == 0 && !environment.agent_store;
  const auto store = detail::open_store(environment, server, options);
  const auto own_connection = detail::open_store(environment, false, options);  // the heartbeat's
  own_connection->setTimeout(options.timeout);
  std::vector<Peer> peers = detail::meet(*store, environment, options);
  const bool other_hosts = world.size > world.local_size;
  const std::string address =
      environment.interface.empty() ? local_address(environment.address, other_hosts) : std::string();
  HeartbeatOptions heartbeat{options.timeout, options.report, "", server ? store : nullptr};
  if (environment.agent_store) {
    heartbeat.store_name = concat("torchrun's store at ", environment.address, ":", environment.port);
  }
  store->setTimeout(options.timeout);
  auto observer = std::make_shared<Heartbeat>(own_connection, std::move(peers), world.rank, std::move(heartbeat));
  std::vector<int> ranks(world.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  MakeBackends gloo = gloo_backends(store, address, environment.interface, options.timeout);
  world.all = Group(with_nccl(std::move(gloo), store, options.timeout),
                    {world.rank, world.size, "world", std::move(ranks), std::move(observer)});
  return world;
}

}  // namespace ilme::dist
