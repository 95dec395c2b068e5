#include "multidevice/comm/local/local_result.h"

#include <cstring>

#include "csrc/base/check.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/reduce.h"

namespace hir::comm {
namespace {

// The contribution of each rank of the team to this one.
std::vector<const std::byte*> Contributions(const LocalOp& op) {
  std::vector<const std::byte*> from;
  for (int64_t j = 0; j < op.team->size(); ++j) {
    from.push_back(j == op.team->index ? Outgoing(op, j) : op.arrived[static_cast<size_t>(j)].data());
  }
  return from;
}

void CopyChunk(std::byte* dst, const std::byte* src, int64_t bytes) {
  if (bytes > 0) std::memmove(dst, src, static_cast<size_t>(bytes));
}

}  // namespace

const std::byte* Outgoing(const LocalOp& op, int64_t to) {
  const bool by_receiver = op.desc.type == CommType::kScatter || op.desc.type == CommType::kReduceScatter ||
                           op.desc.type == CommType::kAllToAll;
  return op.desc.src.data + (by_receiver ? to * ChunkBytes(op.desc) : 0);
}

void PoisonResult(const LocalOp& op, int64_t rank) {
  const CommBytes bytes = BytesOf(op.desc, *op.team, rank);
  const device::Buffer dst = {op.desc.dst.data, bytes.dst};
  if (bytes.dst == 0 || Overlap(dst, {op.desc.src.data, bytes.src})) return;
  std::memset(dst.data, 0xa5, static_cast<size_t>(dst.bytes));
}

void WriteResult(const LocalOp& op, int64_t rank) {
  const CommDesc& desc = op.desc;
  const int64_t bytes = ChunkBytes(desc);
  std::byte* const dst = desc.dst.data;
  if (BytesOf(desc, *op.team, rank).dst == 0) return;
  switch (desc.type) {
    case CommType::kGather:
    case CommType::kAllgather:
    case CommType::kAllToAll: {
      const auto from = Contributions(op);
      for (int64_t j = 0; j < op.team->size(); ++j) CopyChunk(dst + j * bytes, from[static_cast<size_t>(j)], bytes);
      return;
    }
    case CommType::kReduce:
    case CommType::kAllreduce:
    case CommType::kReduceScatter: Reduce(desc.reduce, desc.dtype, Contributions(op), dst, desc.count); return;
    case CommType::kScatter:
    case CommType::kBroadcast:
      CopyChunk(dst, Contributions(op)[static_cast<size_t>(op.team->IndexOf(desc.root).value())], bytes);
      return;
    case CommType::kSendRecv:
    case CommType::kCollectivePermute:
      CopyChunk(dst,
                desc.from == rank ? desc.src.data
                                  : op.arrived[static_cast<size_t>(op.team->IndexOf(desc.from).value())].data(),
                bytes);
      return;
  }
  HIR_CHECK(false);
}

}  // namespace hir::comm
