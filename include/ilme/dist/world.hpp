/// The ranks of a run.
#pragma once

#include <string>
#include <utility>

#include <ilme/dist/group.hpp>

namespace ilme::dist {

/// All ranks of a run and this one's place among them. Made by connect() (dist/connect.hpp); a default one is a run of
/// one process.
struct World {
  Group all;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  std::string launcher = "single";     // "torchrun", "mpirun", "slurm", "sagemaker", "single"

  /// Group::split of all ranks.
  std::pair<Group, Group> split(int ranks_per_group) const { return all.split(ranks_per_group); }
};

}  // namespace ilme::dist
