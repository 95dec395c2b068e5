#include "multidevice/comm/ucx/algorithm.h"

#include "csrc/base/check.h"

namespace hir::comm {

std::unique_ptr<Algorithm> MakeAlgorithm(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  switch (desc.type) {
    case CommType::kGather:
    case CommType::kAllgather:
    case CommType::kScatter:
    case CommType::kAllToAll:
    case CommType::kSendRecv:
    case CommType::kCollectivePermute: return MakeDirect(desc, team, rank);
    case CommType::kBroadcast: return MakeBroadcast(desc, team);
    case CommType::kReduce:
    case CommType::kAllreduce:
    case CommType::kReduceScatter: return MakeReduction(desc, team);
  }
  HIR_CHECK(false);
  return nullptr;
}

}  // namespace hir::comm
