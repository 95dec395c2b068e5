#include "multidevice/comm/ucx/algorithm.h"

#include "csrc/base/check.h"

namespace hir::comm {

std::unique_ptr<Algorithm> MakeAlgorithm(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  switch (desc.type) {
    case CommType::kAllgather:
    case CommType::kAllToAll:
    case CommType::kSendRecv: return MakeDirect(desc, team, rank);
    case CommType::kBroadcast: return MakeBroadcast(desc, team);
    case CommType::kAllreduce:
    case CommType::kReduceScatter: return MakeReduction(desc, team);
    case CommType::kGather:
    case CommType::kScatter:
    case CommType::kReduce:
    case CommType::kCollectivePermute: break;
  }
  HIR_CHECK(false);
  return nullptr;
}

}  // namespace hir::comm
