// Which rank is to blame, by what the ranks report.
#include "support/catch_torch.hpp"

#include <unistd.h>

#include <string>
#include <vector>

#include <ilme/dist/beat.hpp>

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using dist::Beat;
using dist::Peer;
using dist::Seen;

namespace {

constexpr double kTimeout = 10;

/// Three ranks of three hosts that have entered 5 collectives of group "world".
struct Run {
  std::vector<Peer> peers;
  std::vector<Seen> seen;
  Peer self;  // of no host: it sees no process

  Run() {
    for (int rank = 0; rank < 3; ++rank) {
      peers.push_back({rank, concat("host", rank), 100 + rank, 1, concat("machine", rank)});
      seen.emplace_back();
      seen.back().beat.entered["world"] = 5;
    }
  }
  void waits(int rank, double seconds, std::uint64_t number) {
    Beat& beat = seen[rank].beat;
    beat.group = "world";
    beat.collective = "all_reduce";
    beat.entered["world"] = beat.waits_for = number;
    beat.waited = seconds;
    beat.members = {0, 1, 2};
  }
  std::string verdict() const { return dist::judge(peers, seen, self, kTimeout); }
};

}  // namespace

TEST_CASE("ranks that report and work are left alone") {
  Run run;
  CHECK(run.verdict().empty());
  run.waits(0, 7.9, 6);
  run.seen[1].silent = 4.9;
  CHECK(run.verdict().empty());
  run.waits(1, 9, 6);
  run.waits(2, 9, 6);
  CHECK(run.verdict().empty());  // all are in it: it is under way
  run.seen[2].beat.state = Beat::kFinished;
  run.seen[2].silent = 100;
  CHECK(run.verdict().empty());
}

TEST_CASE("a silent rank is found, sooner when a connection broke") {
  Run run;
  run.seen[2].silent = 5.1;
  CHECK_THAT(run.verdict(), StartsWith("rank 2 (host host2, pid 102) has shown no sign of life for 5.1 s"));
  run.seen[2].silent = 2.6;
  CHECK(run.verdict().empty());
  run.seen[1].beat.broken = true;
  CHECK_THAT(run.verdict(), StartsWith("rank 2 (host host2, pid 102)"));
}

TEST_CASE("a rank that others wait for is found, and not one that waits itself") {
  Run run;
  run.waits(0, 8.1, 6);
  run.seen[1].beat.entered["world"] = 6;
  CHECK_THAT(run.verdict(), StartsWith("rank 2 (host host2, pid 102) hangs"));
  CHECK_THAT(run.verdict(), ContainsSubstring("rank 0 has waited 8.1 s for it in all_reduce (number 6"));
  // Rank 1 has not come either, but it waits for rank 2 in another group.
  run.seen[1].beat.entered["world"] = 5;
  Beat& beat = run.seen[1].beat;
  beat.group = "pair";
  beat.collective = "all_gather";
  beat.waits_for = beat.entered["pair"] = 1;
  beat.waited = 8.2;
  beat.members = {1, 2};
  CHECK_THAT(run.verdict(), StartsWith("rank 2 (host host2, pid 102) hangs"));
}

TEST_CASE("a rank that failed or left is found at once") {
  Run run;
  run.seen[1].beat.state = Beat::kFailed;
  CHECK(run.verdict() == "rank 1 (host host1, pid 101) has ended with an error");
  run.seen[1].beat.state = Beat::kFinished;
  run.waits(0, 0.1, 6);
  CHECK(run.verdict().empty());
  run.seen[0].beat.broken = true;
  CHECK_THAT(run.verdict(), StartsWith("rank 1 (host host1, pid 101) has ended: rank 0 has waited 0.1 s"));
}

TEST_CASE("a process of this host is looked at") {
  Run run;
  run.peers[0] = dist::this_peer(0);
  CHECK(run.peers[0].pid == ::getpid());
  CHECK(run.peers[0].started > 0);
  run.peers[1] = run.self = run.peers[0];
  CHECK(run.verdict().empty());
  run.peers[1].started += 1;  // its id belongs to another process by now
  CHECK_THAT(run.verdict(), ContainsSubstring("has died"));
  CHECK(dist::process_state(0).state == '\0');
}

TEST_CASE("reports survive the store") {
  Run run;
  run.waits(1, 1.5, 7);
  run.seen[1].beat.number = 3;
  run.seen[1].beat.broken = true;
  const std::string text = dist::beat_text(run.seen[1].beat);
  CHECK(dist::beat_text(dist::parse_beat(text)) == text);
  const std::string peer = dist::peer_text(run.peers[1]);
  CHECK(dist::peer_text(dist::parse_peer(peer)) == peer);
}
