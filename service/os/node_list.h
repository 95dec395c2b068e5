// The nodes of a cluster, as a fixed list says them, or the members of the etcd that knows them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "service/os/address.h"

namespace hir::service {

inline constexpr size_t kNodesMax = 1024;

// "tcp:10.0.0.1:7001,tcp:10.0.0.2:7001", node 0 first, or the path of a file with one address a line, and comments
// behind "#".
// Errors: kInvalidArgument: an address, by its place; one that is there twice; too many of them; kNotFound: the file.
Result<std::vector<Address>> ParseNodes(std::string_view text);

// "etcd:10.0.0.1:2379,10.0.0.2:2379": the members of one etcd, each as host:port.
// Errors: kInvalidArgument: what is wrong with it.
Result<std::vector<std::string>> ParseEtcd(std::string_view text);

// The variables in which launchers number the processes that they start, the one that says most first: PMIx, Open MPI,
// PMI, Slurm. mpirun in a job of Slurm sets its own beside the job's, which is the same for all that it starts.
inline constexpr std::string_view kLauncherRanks[] = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};

struct LauncherRank {
  std::string_view variable;  // Of kLauncherRanks.
  std::string text;           // Its value, as it is.
};
// The first of kLauncherRanks that `environment` has, a list of "NAME=value" with a null behind the last.
std::optional<LauncherRank> RankOfLauncher(const char* const* environment);

}  // namespace hir::service
