#include "multidevice/comm/peer/paths.h"

#include <algorithm>

#include "multidevice/comm/check_desc.h"

namespace hir::comm {

PeerPath PathOf(const CommDesc& desc, int64_t ranks, int64_t push_bytes, const PeerPaths& paths) {
  if (ranks < 2 || desc.count == 0) return PeerPath::kNone;
  switch (desc.type) {
    case CommType::kAllgather:
    case CommType::kReduceScatter:
    case CommType::kAllToAll:
    case CommType::kAllreduce:
    case CommType::kCollectivePermute: break;
    // Halves of some ranks, or roots: the library's trees and pairs are as good.
    case CommType::kGather:
    case CommType::kScatter:
    case CommType::kReduce:
    case CommType::kBroadcast:
    case CommType::kSendRecv: return PeerPath::kNone;
  }
  if (desc.window != nullptr) return PeerPath::kPuts;
  const int64_t bytes = ChunkBytes(desc);
  // A rank that has no half, or only one, would run ahead of what the rooms of a push allow.
  const bool pushes = desc.type != CommType::kCollectivePermute;
  if (pushes && bytes <= std::min(push_bytes, paths.push_bytes_max)) return PeerPath::kPush;
  const int64_t alone = desc.type == CommType::kReduceScatter
                            ? std::min(paths.reduce_scatter_bytes_min, paths.copies_alone_bytes_min)
                            : paths.copies_alone_bytes_min;
  return bytes >= (desc.by_copies ? paths.copies_bytes_min : alone) ? PeerPath::kCopies : PeerPath::kNone;
}

}  // namespace hir::comm
