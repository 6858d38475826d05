/// Work that all ranks of a group do at once, each its own part, and that succeeds on all of them or on none.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/dist/group.hpp>

namespace ilme::checkpoint {

/// What came of a rank's part: a text for the others, or a fault.
struct Outcome {
  std::string text;
  std::string fault;  ///< one line; empty: none
  int exit_code = 0;  ///< of the fault

  [[noreturn]] void raise() const {
    if (exit_code == InputError("").exit_code()) throw InputError(fault);
    throw RunError(fault);
  }
};

/// Runs `body`, which gives a text, on every rank and gives every rank all outcomes, by rank. Ranks may take very
/// different times: they tell each other every second that they are still at it, so that no collective waits for long.
/// Throws only what the collectives throw when a rank is gone. Collective.
template <class Body>
std::vector<Outcome> outcomes_on_ranks(const dist::Group& group, Body&& body) {
  Outcome mine;
  const auto attempt = [&] {
    try {
      mine.text = body();
    } catch (const Error& error) {
      mine.fault = error.what();
      mine.exit_code = error.exit_code();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      mine.fault = text.substr(0, text.find('\n'));
      mine.exit_code = RunError("").exit_code();
    } catch (...) {
      mine.fault = "an exception of an unknown type";
      mine.exit_code = RunError("").exit_code();
    }
  };
  if (group.size() == 1) {
    attempt();
    return {mine};
  }
  std::future<void> work = std::async(std::launch::async, attempt);
  at::Tensor busy = at::zeros({1}, at::kInt);
  do {
    busy.fill_(work.wait_for(std::chrono::seconds(1)) == std::future_status::ready ? 0 : 1);
    group.all_reduce_max(busy).wait();
  } while (busy.item<int>() != 0);
  const Json packed{mine.text, mine.fault, mine.exit_code};
  std::vector<Outcome> outcomes;
  for (const std::string& text : group.all_gather_text(packed.dump(-1, ' ', false, Json::error_handler_t::replace))) {
    const Json json = parse_json(text, "outcome of a rank");
    outcomes.push_back({json.at(0).get<std::string>(), json.at(1).get<std::string>(), json.at(2).get<int>()});
  }
  return outcomes;
}

/// The fault of the lowest rank that has one, with that rank's number when there are several; an empty one when none.
inline Outcome first_fault(const std::vector<Outcome>& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    Outcome outcome = outcomes[rank];
    if (outcome.fault.empty()) continue;
    if (outcomes.size() > 1) outcome.fault += concat(" (rank ", rank, ")");
    return outcome;
  }
  return {};
}

/// The texts that `body` gave on the ranks. When it threw on any of them, all throw that rank's error. Collective.
template <class Body>
std::vector<std::string> on_all_ranks(const dist::Group& group, Body&& body) {
  const std::vector<Outcome> outcomes = outcomes_on_ranks(group, std::forward<Body>(body));
  if (const Outcome failed = first_fault(outcomes); !failed.fault.empty()) failed.raise();
  std::vector<std::string> texts;
  for (const Outcome& outcome : outcomes) texts.push_back(outcome.text);
  return texts;
}

}  // namespace ilme::checkpoint
