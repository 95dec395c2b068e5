#include "multidevice/comm/communicator.h"

#include "csrc/base/check.h"

namespace hir::comm {

std::string_view CommTypeName(CommType type) {
  switch (type) {
    case CommType::kGather: return "gather";
    case CommType::kAllgather: return "allgather";
    case CommType::kScatter: return "scatter";
    case CommType::kReduce: return "reduce";
    case CommType::kAllreduce: return "allreduce";
    case CommType::kReduceScatter: return "reduce_scatter";
    case CommType::kBroadcast: return "broadcast";
    case CommType::kSendRecv: return "send_recv";
    case CommType::kAllToAll: return "all_to_all";
    case CommType::kCollectivePermute: return "collective_permute";
  }
  HIR_CHECK(false);
  return {};
}

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMean: return "mean";
  }
  HIR_CHECK(false);
  return {};
}

}  // namespace hir::comm
