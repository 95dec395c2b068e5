#include "multidevice/comm/ucx/algorithm.h"

#include "csrc/base/check.h"

namespace hir::comm {

std::unique_ptr<Algorithm> MakeAlgorithm(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of,
                                         int64_t rank) {
  switch (desc.type) {
    case CommType::kAllgather:
      return node_of.empty() ? MakeDirect(desc, team, rank) : MakeTwoLevelGather(desc, team, node_of, rank);
    case CommType::kGather:
    case CommType::kScatter:
    case CommType::kAllToAll:
    case CommType::kSendRecv:
    case CommType::kCollectivePermute: return MakeDirect(desc, team, rank);
    case CommType::kBroadcast: return MakeBroadcast(desc, team, node_of);
    case CommType::kReduce:
    case CommType::kAllreduce:
    case CommType::kReduceScatter: return MakeReduction(desc, team, node_of);
  }
  HIR_CHECK(false);
  return nullptr;
}

}  // namespace hir::comm
