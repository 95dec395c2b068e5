#include "multidevice/comm/check_desc.h"

#include <optional>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::comm {
namespace {

using base::Cat;
using device::Buffer;

// How many chunks src and dst hold on this rank.
struct Chunks {
  int64_t src = 0;
  int64_t dst = 0;
};

Chunks ChunksOf(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  switch (desc.type) {
    case CommType::kGather: return {1, desc.root == rank ? team.size() : 0};
    case CommType::kAllgather: return {1, team.size()};
    case CommType::kScatter: return {desc.root == rank ? team.size() : 0, 1};
    case CommType::kReduce: return {1, desc.root == rank ? 1 : 0};
    case CommType::kAllreduce: return {1, 1};
    case CommType::kReduceScatter: return {team.size(), 1};
    case CommType::kBroadcast: return {desc.root == rank ? 1 : 0, 1};
    case CommType::kAllToAll: return {team.size(), team.size()};
    case CommType::kSendRecv:
    case CommType::kCollectivePermute: return {desc.to == kNoRank ? 0 : 1, desc.from == kNoRank ? 0 : 1};
  }
  HIR_CHECK(false);
  return {};
}

Status CheckPeer(const CommDesc& desc, std::string_view role, int64_t peer, const TeamInfo& team) {
  if (team.IndexOf(peer)) return {};
  return InvalidArgument(Cat(CommName(desc), ": ", role, " ", peer, " is not in team ", team.ToString()));
}

Status CheckPeers(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  if (IsRooted(desc.type)) return CheckPeer(desc, "root", desc.root, team);
  if (!HasHalves(desc.type)) return {};
  if (desc.to != kNoRank) HIR_TRY(CheckPeer(desc, "to", desc.to, team));
  if (desc.from != kNoRank) HIR_TRY(CheckPeer(desc, "from", desc.from, team));
  if ((desc.to == rank) != (desc.from == rank)) {
    return InvalidArgument(Cat(CommName(desc), ": to is ", desc.to, " and from is ", desc.from, " on rank ", rank,
                               ": both name this rank, or neither"));
  }
  return {};
}

Status CheckBuffer(const CommDesc& desc, std::string_view role, const Buffer& buffer, int64_t chunks) {
  const int64_t bytes = chunks * ChunkBytes(desc);
  if (buffer.bytes < bytes) {
    return InvalidArgument(Cat(CommName(desc), ": ", role, " has ", buffer.bytes, " bytes, ", bytes, " are needed (",
                               chunks, " x ", desc.count, " ", DTypeName(desc.dtype), ")"));
  }
  if (bytes == 0) return {};
  if (buffer.data == nullptr) return InvalidArgument(Cat(CommName(desc), ": ", role, " is null"));
  const int64_t alignment = DTypeBytes(desc.dtype);
  if (reinterpret_cast<uintptr_t>(buffer.data) % static_cast<uintptr_t>(alignment) != 0) {
    return InvalidArgument(Cat(CommName(desc), ": ", role, " is not aligned to ", alignment, " bytes"));
  }
  return {};
}

// Whether `src` and `dst`, cut to what is used, lie as "In place" at CommDesc allows.
bool IsInPlace(const CommDesc& desc, const TeamInfo& team, const Buffer& src, const Buffer& dst) {
  const int64_t own_chunk = team.index * ChunkBytes(desc);
  if (desc.type == CommType::kAllgather || desc.type == CommType::kGather) return src.data == dst.data + own_chunk;
  if (desc.type == CommType::kReduceScatter || desc.type == CommType::kScatter) return dst.data == src.data + own_chunk;
  return src.data == dst.data;
}

}  // namespace

std::string CommName(const CommDesc& desc) { return Cat(CommTypeName(desc.type), " #", desc.seq); }

Status CheckDesc(const CommDesc& desc, const TeamInfo* team, int64_t rank) {
  if (team == nullptr)
    return InvalidArgument(Cat(CommName(desc), ": there is no team ", static_cast<int32_t>(desc.team)));
  if (desc.count < 0) return InvalidArgument(Cat(CommName(desc), ": count is ", desc.count));
  const std::optional<int64_t> chunk = base::CheckedMul(desc.count, DTypeBytes(desc.dtype));
  if (!chunk || !base::CheckedMul(*chunk, team->size())) {
    return InvalidArgument(Cat(CommName(desc), ": count ", desc.count, " is too large"));
  }
  if (Reduces(desc.type) && desc.reduce == ReduceOp::kMean && !IsFloat(desc.dtype)) {
    return InvalidArgument(Cat(CommName(desc), ": reduce is mean, of ", DTypeName(desc.dtype),
                               "; a mean is of floats: cast them, or use sum"));
  }
  HIR_TRY(CheckPeers(desc, *team, rank));
  const Chunks chunks = ChunksOf(desc, *team, rank);
  HIR_TRY(CheckBuffer(desc, "src", desc.src, chunks.src));
  HIR_TRY(CheckBuffer(desc, "dst", desc.dst, chunks.dst));
  const CommBytes bytes = BytesOf(desc, *team, rank);
  const Buffer src = {desc.src.data, bytes.src};
  const Buffer dst = {desc.dst.data, bytes.dst};
  if (Overlap(src, dst) && !IsInPlace(desc, *team, src, dst)) {
    return InvalidArgument(Cat(CommName(desc), ": src and dst overlap, and not as the in-place form allows"));
  }
  return {};
}

CommBytes BytesOf(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  const Chunks chunks = ChunksOf(desc, team, rank);
  return {.src = chunks.src * ChunkBytes(desc), .dst = chunks.dst * ChunkBytes(desc)};
}

}  // namespace hir::comm
