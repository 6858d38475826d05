/// What a group tells about itself while it works.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ilme::dist {

/// Hears of the collectives that this process enters and waits for, and finds out which rank made one fail
/// (dist/heartbeat.hpp). Called from any thread.
class Observer {
 public:
  virtual ~Observer() = default;

  /// A collective of the group begins; returns its number within the group, from 1.
  virtual std::uint64_t enter(const std::string& group, const std::vector<int>& ranks) = 0;

  /// This thread waits for the collective until the matching waited().
  virtual void waiting(const std::string& group, std::uint64_t number, const char* collective) = 0;
  virtual void waited(const std::string& group, std::uint64_t number) = 0;

  /// A collective failed with `error`, which names no rank: waits until it is known whose fault it was, and returns the
  /// message for the user.
  virtual std::string explain(const std::string& error) = 0;
};

/// A rank's membership of a group.
struct Membership {
  int rank = 0, size = 1;              // in the group
  std::string name;                    // equal on the group's ranks, and theirs alone
  std::vector<int> ranks;              // of the members in the whole run
  std::shared_ptr<Observer> observer;  // may be none
};

}  // namespace ilme::dist
