/// What the environment says about the ranks of a run: torchrun, Open MPI's mpirun, SLURM's srun, a SageMaker job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/json.hpp>
#include <ilme/dist/node_list.hpp>

namespace ilme::dist {

/// A rank's place, and where the ranks meet.
struct Environment {
  std::string launcher = "single";  // "torchrun", "mpirun", "slurm", "sagemaker", "single"
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  std::string address;                 // of the host that serves the store: rank 0's; empty for one rank
  int port = 0;
  bool agent_store = false;  // torchrun serves the store, and rank 0 is a client of it like the others
  std::string run;           // tells apart the runs, and the restarts of a run, that use one store
  std::string interface;     // network interface to listen on; empty: the one that leads to the store
};

/// The value of an environment variable, or nothing.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process.
inline std::optional<std::string> process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

namespace detail {

/// Reads variables; an error names the variable, its value and what to do.
class EnvironmentReader {
 public:
  explicit EnvironmentReader(const Variables& variables) : variables_(variables) {}

  Environment read() {
    if (has("RANK") || has("WORLD_SIZE")) return read_torchrun();
    if (has("OMPI_COMM_WORLD_SIZE") || has("OMPI_COMM_WORLD_RANK")) return read_open_mpi();
    if (has("SLURM_PROCID")) return read_slurm();
    const std::filesystem::path config =
        std::filesystem::path(find("SM_INPUT_CONFIG_DIR").value_or("/opt/ml/input/config")) / "resourceconfig.json";
    if (has("SM_HOSTS") || has("SM_CURRENT_HOST") || std::filesystem::exists(config)) return read_sagemaker(config);
    return {};
  }

 private:
  Environment read_torchrun() {
    remedy_ = "start the ranks with torchrun --no-python, or unset RANK and WORLD_SIZE for a run of one process";
    Environment result;
    result.launcher = "torchrun";
    result.rank = require_number("RANK");
    result.size = require_number("WORLD_SIZE");
    if (result.size > 1 || has("LOCAL_RANK")) {
      result.local_rank = require_number("LOCAL_RANK");
      result.local_size = has("LOCAL_WORLD_SIZE") ? require_number("LOCAL_WORLD_SIZE") : result.local_rank + 1;
    }
    check(result, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (result.size > 1) {
      result.address = require("MASTER_ADDR");
      require("MASTER_PORT");
      result.port = port("");
    }
    result.agent_store = find("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    result.run = find("TORCHELASTIC_RUN_ID").value_or("none") + "/" + find("TORCHELASTIC_RESTART_COUNT").value_or("0");
    return with_interface(result);
  }

  Environment read_open_mpi() {
    remedy_ = "start the ranks with Open MPI's mpirun";
    Environment result;
    result.launcher = "mpirun";
    result.rank = require_number("OMPI_COMM_WORLD_RANK");
    result.size = require_number("OMPI_COMM_WORLD_SIZE");
    result.local_rank = require_number("OMPI_COMM_WORLD_LOCAL_RANK");
    result.local_size = require_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    check(result, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (result.size > 1) {
      result.address = find("MASTER_ADDR").value_or("127.0.0.1");
      if (result.size > result.local_size && !has("MASTER_ADDR")) {
        throw InputError("MASTER_ADDR is not set, and the ranks are on several hosts (OMPI_COMM_WORLD_SIZE is ",
                         result.size, ", OMPI_COMM_WORLD_LOCAL_SIZE ", result.local_size,
                         "): add -x MASTER_ADDR=HOST to mpirun, the host of rank 0");
      }
      result.port = port(find("PMIX_NAMESPACE").value_or(find("OMPI_MCA_ess_base_jobid").value_or("")));
    }
    return with_interface(result);
  }

  Environment read_slurm() {
    remedy_ = "start the ranks with srun, or unset SLURM_PROCID for a run of one process";
    Environment result;
    result.launcher = "slurm";
    result.rank = require_number("SLURM_PROCID");
    const std::string tasks = has("SLURM_NTASKS") || !has("SLURM_NPROCS") ? "SLURM_NTASKS" : "SLURM_NPROCS";
    result.size = require_number(tasks);
    if (result.size > 1) {
      result.local_rank = require_number("SLURM_LOCALID");
      std::string list = "SLURM_STEP_NODELIST";
      for (const char* other : {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}) list = has(list) ? list : other;
      std::vector<std::string> hosts;
      if (has(list) || !has("MASTER_ADDR")) hosts = expand_node_list(require(list), list);
      std::string counts = has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
      if (hosts.size() == 1) {
        counts = tasks;
        result.local_size = result.size;
      } else if (has(counts)) {
        const std::vector<int> per_host = expand_task_counts(require(counts), counts);
        const int host = require_number("SLURM_NODEID");
        if (host >= static_cast<int>(per_host.size())) {
          throw InputError("SLURM_NODEID is ", host, ", but ", counts, " is \"", require(counts), "\", which has ",
                           per_host.size(), " hosts: ", remedy_);
        }
        result.local_size = per_host[host];
      } else {
        result.local_size = result.local_rank + 1;
      }
      check(result, "SLURM_PROCID", tasks, "SLURM_LOCALID", counts);
      result.address = find("MASTER_ADDR").value_or(hosts.size() == 1 ? "127.0.0.1" : hosts.front());
      result.port = port(find("SLURM_JOB_ID").value_or("") + "." + find("SLURM_STEP_ID").value_or(""));
    } else {
      check(result, "SLURM_PROCID", tasks, "SLURM_LOCALID", tasks);
    }
    return with_interface(result);
  }

  /// One process a host, or, where a host has several GPUs, one a GPU, told apart by LOCAL_RANK.
  Environment read_sagemaker(const std::filesystem::path& config) {
    remedy_ = "SageMaker sets it in a training job";
    Environment result;
    result.launcher = "sagemaker";
    std::vector<std::string> hosts;
    std::string current, hosts_name = "SM_HOSTS", current_name = "SM_CURRENT_HOST";
    if (std::filesystem::exists(config)) {
      const Json json = read_json(config);
      JsonObject object(json, config.string());
      hosts = object.require<std::vector<std::string>>("hosts");
      current = object.require<std::string>("current_host");
      result.interface = object.get<std::string>("network_interface_name", "");
    }
    if (const auto text = find("SM_HOSTS")) {
      std::vector<std::string> named;
      try {
        named = Json::parse(*text).get<std::vector<std::string>>();
      } catch (const Json::exception&) {
        throw InputError("SM_HOSTS is \"", *text, "\": expected a JSON list of hosts such as [\"algo-1\",\"algo-2\"]");
      }
      if (!hosts.empty() && hosts != named) {
        throw InputError("SM_HOSTS is ", *text, ", but ", config.string(), " has hosts ", Json(hosts).dump(),
                         ": unset the variable, or correct it");
      }
      hosts = named;
    }
    if (const auto text = find("SM_CURRENT_HOST")) {
      if (!current.empty() && current != *text) {
        throw InputError("SM_CURRENT_HOST is \"", *text, "\", but ", config.string(), " has current_host \"", current,
                         "\": unset the variable, or correct it");
      }
      current = *text;
    }
    if (hosts.empty()) require("SM_HOSTS");
    if (current.empty()) require("SM_CURRENT_HOST");
    const auto host = std::find(hosts.begin(), hosts.end(), current);
    if (host == hosts.end()) {
      throw InputError("SM_CURRENT_HOST is \"", current, "\", which is not among the hosts (SM_HOSTS) ",
                       Json(hosts).dump(), ": ", remedy_);
    }

    std::string local = has("LOCAL_WORLD_SIZE") ? "LOCAL_WORLD_SIZE" : "SM_NUM_GPUS";
    result.local_size = has(local) ? std::max(1, require_number(local)) : 1;
    if (result.local_size > 1) {
      if (!has("LOCAL_RANK")) {
        throw InputError("LOCAL_RANK is not set, and ", local, " is ", result.local_size,
                         ": start the processes of a host with torchrun --no-python --nproc-per-node ",
                         result.local_size, ", or set LOCAL_WORLD_SIZE=1 for one process a host");
      }
      result.local_rank = require_number("LOCAL_RANK");
    }
    result.size = static_cast<int>(hosts.size()) * result.local_size;
    result.rank = static_cast<int>(host - hosts.begin()) * result.local_size + result.local_rank;
    check(result, "SM_CURRENT_HOST", "SM_HOSTS", "LOCAL_RANK", local);
    if (result.size > 1) {
      result.address = find("MASTER_ADDR").value_or(hosts.size() == 1 ? "127.0.0.1" : hosts.front());
      result.port = port("");
    }
    return with_interface(result);
  }

  /// The value; an empty one counts as none.
  std::optional<std::string> find(const std::string& name) const {
    auto value = variables_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(const std::string& name) const { return find(name).has_value(); }

  std::string require(const std::string& name) const {
    const auto value = find(name);
    if (!value) throw InputError(name, " is not set: ", remedy_);
    return *value;
  }

  int require_number(const std::string& name) const {
    const std::string text = require(name);
    int value = 0;
    if (!parse_number(text, value)) {
      throw InputError(name, " is \"", text, "\": expected a whole number from 0; ", remedy_);
    }
    return value;
  }

  /// MASTER_PORT; else one that is the same for all ranks of the job and likely free: two jobs may share a host.
  int port(const std::string& job) const {
    if (has("MASTER_PORT")) {
      const int value = require_number("MASTER_PORT");
      if (value < 1 || value > 65535) throw InputError("MASTER_PORT is ", value, ": expected a port from 1 to 65535");
      return value;
    }
    std::uint32_t hash = 2166136261u;  // FNV-1a
    for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return 20'000 + static_cast<int>(hash % 10'000);  // below the range from which systems hand ports out
  }

  Environment with_interface(Environment result) const {
    result.interface = find("GLOO_SOCKET_IFNAME").value_or(result.interface);
    if (result.interface.find(',') != std::string::npos) {
      throw InputError("GLOO_SOCKET_IFNAME is \"", result.interface, "\": expected one network interface");
    }
    return result;
  }

  void check(const Environment& e, const std::string& rank, const std::string& size, const std::string& local_rank,
             const std::string& local_size) const {
    if (e.size < 1) throw InputError(size, " is ", e.size, ": expected at least one rank; ", remedy_);
    if (e.local_rank >= e.local_size) {
      throw InputError(local_rank, " is ", e.local_rank, ", but ", local_size, " gives this host ", e.local_size,
                       " ranks: expected a number below it; ", remedy_);
    }
    if (e.local_size > e.size) {
      throw InputError(local_size, " gives this host ", e.local_size, " ranks, but ", size, " is ", e.size, ": ",
                       remedy_);
    }
    if (e.rank >= e.size) {
      throw InputError(rank, " is ", e.rank, ", but ", size, " is ", e.size, ": expected a rank below it; ", remedy_);
    }
  }

  const Variables& variables_;
  std::string remedy_;
};

}  // namespace detail

/// Reads the first of: RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_* (Open MPI), SLURM_PROCID (srun), a SageMaker
/// job's SM_* variables or its resourceconfig.json; one process when there is none. MASTER_ADDR and MASTER_PORT, where
/// they are set, say where the ranks meet. Throws InputError that names a variable that is missing, malformed or at
/// odds with another.
inline Environment read_environment(const Variables& variables = process_variable) {
  return detail::EnvironmentReader(variables).read();
}

}  // namespace ilme::dist
