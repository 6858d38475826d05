// Ranks from the variables that launchers set.
#include "support/catch_torch.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>
#include <ilme/dist/environment.hpp>

#include "support/temporary.hpp"

using namespace ilme;
using Catch::Matchers::ContainsSubstring;
using dist::Environment;

namespace {

using Table = std::map<std::string, std::string>;

Environment read(const Table& table) {
  return dist::read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = table.find(name);
    if (found == table.end()) return std::nullopt;
    return found->second;
  });
}

Table with(Table table, const Table& changes) {
  for (const auto& [name, value] : changes) table[name] = value;
  return table;
}

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

/// Reading fails, and the error has each of `texts`.
void refuses(const Table& table, const std::vector<std::string>& texts) {
  try {
    read(table);
    FAIL("no error, expected one with " << texts.front());
  } catch (const InputError& error) {
    for (const std::string& text : texts) CHECK_THAT(error.what(), ContainsSubstring(text));
  }
}

void check(const Environment& e, const std::string& launcher, int rank, int size, int local_rank, int local_size,
           const std::string& address) {
  CHECK(e.launcher == launcher);
  CHECK(e.rank == rank);
  CHECK(e.size == size);
  CHECK(e.local_rank == local_rank);
  CHECK(e.local_size == local_size);
  CHECK(e.address == address);
  CHECK((e.port > 0) == (size > 1));
}

const Table kTorchrun = {
    {"RANK", "5"},           {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"},
};
const Table kMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                    {"MASTER_ADDR", "10.0.0.1"}};
const Table kSlurm = {{"SLURM_PROCID", "6"},
                      {"SLURM_NTASKS", "7"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "3"},
                      {"SLURM_STEP_NODELIST", "node[009-011],gpu7"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                      {"SLURM_JOB_ID", "77"}};

}  // namespace

TEST_CASE("no launcher is a run of one process") {
  check(read({{"SM_INPUT_CONFIG_DIR", "/nowhere"}}), "single", 0, 1, 0, 1, "");
  check(read({{"SM_INPUT_CONFIG_DIR", "/nowhere"}, {"RANK", ""}}), "single", 0, 1, 0, 1, "");
}

TEST_CASE("torchrun's variables") {
  const Environment plain = read(kTorchrun);
  check(plain, "torchrun", 5, 8, 1, 4, "head");
  CHECK(plain.port == 1234);
  CHECK_FALSE(plain.agent_store);
  const Environment agent = read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                  {"TORCHELASTIC_RUN_ID", "job"},
                                                  {"TORCHELASTIC_RESTART_COUNT", "2"},
                                                  {"GLOO_SOCKET_IFNAME", "eth1"}}));
  CHECK(agent.agent_store);
  CHECK(agent.run == "job/2");
  CHECK(agent.interface == "eth1");
  check(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "torchrun", 0, 1, 0, 1, "");

  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    refuses(without(kTorchrun, name), {std::string(name) + " is not set", "torchrun --no-python"});
  }
  refuses(with(kTorchrun, {{"RANK", "8"}}), {"RANK is 8", "WORLD_SIZE is 8"});
  refuses(with(kTorchrun, {{"RANK", "-1"}}), {"RANK is \"-1\""});
  refuses(with(kTorchrun, {{"WORLD_SIZE", "two"}}), {"WORLD_SIZE is \"two\"", "whole number"});
  refuses(with(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE is \"99999999999\""});
  refuses({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE is 0"});
  refuses(with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK is 4", "LOCAL_WORLD_SIZE", "4"});
  refuses(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"LOCAL_WORLD_SIZE", "9", "WORLD_SIZE is 8"});
  refuses(with(kTorchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT is 65536", "65535"});
  refuses(with(kTorchrun, {{"GLOO_SOCKET_IFNAME", "eth0,eth1"}}), {"GLOO_SOCKET_IFNAME is \"eth0,eth1\""});
}

TEST_CASE("Open MPI's variables") {
  check(read(kMpi), "mpirun", 3, 4, 1, 2, "10.0.0.1");
  const Table one_host =
      with(without(kMpi, "MASTER_ADDR"), {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  check(read(one_host), "mpirun", 3, 4, 3, 4, "127.0.0.1");
  CHECK(read(with(one_host, {{"PMIX_NAMESPACE", "1"}})).port != read(with(one_host, {{"PMIX_NAMESPACE", "2"}})).port);
  CHECK(read(with(one_host, {{"MASTER_PORT", "999"}})).port == 999);
  refuses(without(kMpi, "MASTER_ADDR"), {"MASTER_ADDR is not set", "LOCAL_SIZE 2", "-x MASTER_ADDR="});
  refuses(without(kMpi, "OMPI_COMM_WORLD_LOCAL_RANK"), {"OMPI_COMM_WORLD_LOCAL_RANK is not set", "mpirun"});
  refuses(with(kMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}), {"OMPI_COMM_WORLD_RANK is 4", "OMPI_COMM_WORLD_SIZE is 4"});
  // torchrun under mpirun (or srun) speaks for the ranks that it starts.
  check(read(with(kMpi, kTorchrun)), "torchrun", 5, 8, 1, 4, "head");
}

TEST_CASE("SLURM's variables") {
  check(read(kSlurm), "slurm", 6, 7, 0, 1, "node009");
  check(read(with(kSlurm, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}})), "slurm", 3, 7, 1, 2,
        "node009");
  CHECK(read(kSlurm).port != read(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port);
  check(read(with(kSlurm, {{"MASTER_ADDR", "10.1.1.1"}})), "slurm", 6, 7, 0, 1, "10.1.1.1");
  const Table one_host = {
      {"SLURM_PROCID", "1"}, {"SLURM_NPROCS", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODELIST", "login"}};
  check(read(one_host), "slurm", 1, 2, 1, 2, "127.0.0.1");
  check(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}), "slurm", 0, 1, 0, 1, "");

  refuses(without(kSlurm, "SLURM_NTASKS"), {"SLURM_NTASKS is not set", "srun"});
  refuses(without(kSlurm, "SLURM_LOCALID"), {"SLURM_LOCALID is not set", "srun"});
  refuses(without(kSlurm, "SLURM_NODEID"), {"SLURM_NODEID is not set"});
  refuses(without(kSlurm, "SLURM_STEP_NODELIST"), {"SLURM_NODELIST is not set"});
  refuses(with(kSlurm, {{"SLURM_NODEID", "4"}}), {"SLURM_NODEID is 4", "2(x3),1", "4 hosts"});
  refuses(with(kSlurm, {{"SLURM_LOCALID", "1"}}), {"SLURM_LOCALID is 1", "SLURM_STEP_TASKS_PER_NODE"});
  refuses(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(3)"}}), {"SLURM_STEP_TASKS_PER_NODE is \"2(3)\""});
  refuses(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[1-"}}), {"SLURM_STEP_NODELIST is \"node[1-\""});
}

TEST_CASE("SLURM's short lists") {
  using Hosts = std::vector<std::string>;
  CHECK(dist::expand_node_list("node[001-003,7]", "L") == Hosts{"node001", "node002", "node003", "node7"});
  CHECK(dist::expand_node_list("a,b-2,c[9-11]x", "L") == Hosts{"a", "b-2", "c9x", "c10x", "c11x"});
  CHECK(dist::expand_node_list("r[1-2]n[0-1]", "L") == Hosts{"r1n0", "r2n0", "r1n1", "r2n1"});
  for (const char* bad :
       {"", ",", "a[", "a[]", "a]", "a[1-]", "a[3-1]", "a[x]", "a[1-2-3]", "a,,b", "a[0-999999999]"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(dist::expand_node_list(bad, "L"), ContainsSubstring("L is \"" + std::string(bad)));
  }
  CHECK(dist::expand_task_counts("2(x3),1", "L") == std::vector<int>{2, 2, 2, 1});
  CHECK(dist::expand_task_counts("4", "L") == std::vector<int>{4});
  for (const char* bad : {"", "2(x", "2(x3", "(x3)", "2(xa)", "-1", "2(x3)4", "1,"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(dist::expand_task_counts(bad, "L"), InputError);
  }
}

TEST_CASE("a SageMaker job's variables and resourceconfig.json") {
  const test::TemporaryFolder folder;
  const Table none = {{"SM_INPUT_CONFIG_DIR", folder.path().string()}};
  const Table job =
      with(none, {{"SM_HOSTS", R"(["algo-1","algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}, {"SM_NUM_GPUS", "0"}});
  check(read(none), "single", 0, 1, 0, 1, "");
  check(read(job), "sagemaker", 1, 2, 0, 1, "algo-1");
  check(read(without(job, "SM_NUM_GPUS")), "sagemaker", 1, 2, 0, 1, "algo-1");
  const Table gpus = with(job, {{"SM_NUM_GPUS", "4"}, {"LOCAL_RANK", "3"}});
  check(read(gpus), "sagemaker", 7, 8, 3, 4, "algo-1");
  check(read(with(job, {{"SM_NUM_GPUS", "4"}, {"LOCAL_WORLD_SIZE", "1"}})), "sagemaker", 1, 2, 0, 1, "algo-1");
  check(read(with(job, {{"SM_HOSTS", R"(["algo-2"])"}})), "sagemaker", 0, 1, 0, 1, "");

  refuses(without(job, "SM_HOSTS"), {"SM_HOSTS is not set"});
  refuses(without(job, "SM_CURRENT_HOST"), {"SM_CURRENT_HOST is not set"});
  refuses(with(job, {{"SM_CURRENT_HOST", "algo-3"}}), {"SM_CURRENT_HOST is \"algo-3\"", "algo-1"});
  refuses(with(job, {{"SM_HOSTS", "algo-1"}}), {"SM_HOSTS is \"algo-1\"", "JSON"});
  refuses(without(gpus, "LOCAL_RANK"), {"LOCAL_RANK is not set", "SM_NUM_GPUS is 4", "--nproc-per-node 4"});
  refuses(with(gpus, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK is 4", "SM_NUM_GPUS"});

  write_file(folder / "resourceconfig.json",
             R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"})");
  check(read(none), "sagemaker", 0, 2, 0, 1, "algo-1");
  CHECK(read(none).interface == "eth0");
  CHECK(read(with(none, {{"GLOO_SOCKET_IFNAME", "lo"}})).interface == "lo");
  check(read(with(none, {{"SM_CURRENT_HOST", "algo-1"}})), "sagemaker", 0, 2, 0, 1, "algo-1");
  refuses(job, {"SM_CURRENT_HOST is \"algo-2\"", "resourceconfig.json", "algo-1"});
  refuses(with(none, {{"SM_HOSTS", R"(["algo-9"])"}}), {"SM_HOSTS is [\"algo-9\"]", "resourceconfig.json"});
  write_file(folder / "resourceconfig.json", R"({"hosts": ["algo-1"]})");
  refuses(none, {"resourceconfig.json", "current_host"});
}
