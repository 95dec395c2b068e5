#include "tests/conformance/mpi/rank_device.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "csrc/base/text.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"

namespace hir::comm {

Result<int64_t> DeviceOfRank(const rank::Backends& backends) {
  const MpiRendezvous& ranks = Ranks();
  HIR_ASSIGN(const int64_t devices, backends.num_devices());
  if (backends.uses_host_memory || devices >= ranks.size()) return ranks.node_rank();
  const char* const share = std::getenv("HOSTIR_RANKS_SHARE_DEVICES");
  if (devices == 0 || share == nullptr || std::string_view(share) != "1")
    return Unavailable(base::Cat(ranks.size(), " ranks need a device each; there are ", devices,
                                 " (HOSTIR_RANKS_SHARE_DEVICES=1 lets them share)"));
  const std::string host = base::Cat("hostir-", ranks.node_rank() / devices);
  setenv("NCCL_HOSTID", host.c_str(), 1);
  return ranks.node_rank() % devices;
}

}  // namespace hir::comm
