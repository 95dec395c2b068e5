#include "multidevice/comm/nccl/nccl_calls.h"

#include "csrc/base/check.h"
#include "multidevice/comm/check_desc.h"

namespace hir::comm {
namespace {

// bool is a byte, 0 or 1.
ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return ncclUint8;
    case DType::kInt8: return ncclInt8;
    case DType::kInt32: return ncclInt32;
    case DType::kInt64: return ncclInt64;
    case DType::kFloat16: return ncclFloat16;
    case DType::kBFloat16: return ncclBfloat16;
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
  }
  HIR_CHECK(false);
  return ncclUint8;
}

// On truth values "or" is the maximum and "and" the minimum.
ncclRedOp_t OpOf(ReduceOp op, DType dtype) {
  const bool truth = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum: return truth ? ncclMax : ncclSum;
    case ReduceOp::kProd: return truth ? ncclMin : ncclProd;
    case ReduceOp::kMin: return ncclMin;
    case ReduceOp::kMax: return ncclMax;
    case ReduceOp::kMean: return ncclAvg;
  }
  HIR_CHECK(false);
  return ncclSum;
}

bool Exchanges(CommType type) { return type == CommType::kAllToAll || HasHalves(type); }

// The calls of one communication; the first error is kept.
class Calls {
 public:
  Calls(const NcclLibrary& nccl, const NcclOp& op, int64_t rank, cudaStream_t stream)
      : nccl_(nccl),
        op_(op),
        desc_(op.desc),
        rank_(rank),
        stream_(stream),
        bytes_(ChunkBytes(op.desc)),
        count_(static_cast<size_t>(op.desc.count)),
        type_(TypeOf(op.desc.dtype)),
        reduce_(OpOf(op.desc.reduce, op.desc.dtype)),
        root_(IsRooted(op.desc.type) ? PlaceOf(op.desc.root) : 0) {}

  Status Issue() {
    const std::byte* const src = op_.scratch == nullptr ? desc_.src.data : op_.scratch;
    std::byte* const dst = desc_.dst.data;
    switch (desc_.type) {
      case CommType::kAllgather:
        return Told(nccl_.AllGather(src, dst, count_, type_, op_.comm, stream_), "ncclAllGather");
      case CommType::kAllreduce:
        return Told(nccl_.AllReduce(src, dst, count_, type_, reduce_, op_.comm, stream_), "ncclAllReduce");
      case CommType::kReduceScatter:
        return Told(nccl_.ReduceScatter(src, dst, count_, type_, reduce_, op_.comm, stream_), "ncclReduceScatter");
      case CommType::kReduce:
        return Told(nccl_.Reduce(src, dst, count_, type_, reduce_, root_, op_.comm, stream_), "ncclReduce");
      case CommType::kBroadcast:
        return Told(nccl_.Broadcast(IsRoot() ? src : dst, dst, count_, type_, root_, op_.comm, stream_),
                    "ncclBroadcast");
      case CommType::kGather:
        HIR_TRY(Exchange(src, root_, IsRoot() ? dst + Own() : nullptr, root_));
        return IsRoot() ? ForEachOther([&](int peer) { return Recv(dst + peer * bytes_, peer); }) : Status();
      case CommType::kScatter:
        HIR_TRY(Exchange(IsRoot() ? src + Own() : nullptr, root_, dst, root_));
        return IsRoot() ? ForEachOther([&](int peer) { return Send(src + peer * bytes_, peer); }) : Status();
      case CommType::kAllToAll: {
        const int own = static_cast<int>(op_.team->index);
        HIR_TRY(Exchange(src + Own(), own, dst + Own(), own));
        return ForEachOther([&](int peer) { return Exchange(src + peer * bytes_, peer, dst + peer * bytes_, peer); });
      }
      case CommType::kSendRecv:
      case CommType::kCollectivePermute:
        if (desc_.to != kNoRank) HIR_TRY(Send(src, PlaceOf(desc_.to)));
        return desc_.from == kNoRank ? Status() : Recv(dst, PlaceOf(desc_.from));
    }
    HIR_CHECK(false);
    return {};
  }

 private:
  int PlaceOf(int64_t rank) const { return static_cast<int>(op_.team->IndexOf(rank).value()); }
  bool IsRoot() const { return desc_.root == rank_; }

  Status Told(ncclResult_t result, std::string_view call) const { return NcclStatus(nccl_, result, call, op_.comm); }
  Status Send(const std::byte* data, int peer) const {
    return Told(nccl_.Send(data, count_, type_, peer, op_.comm, stream_), "ncclSend");
  }
  Status Recv(std::byte* data, int peer) const {
    return Told(nccl_.Recv(data, count_, type_, peer, op_.comm, stream_), "ncclRecv");
  }
  // Either half may be absent; what lies where it belongs stays. To itself a rank sends in the same group: NCCL copies
  // then while it talks to the others, where a copy in front of the group would take its time alone.
  Status Exchange(const std::byte* from, int to, std::byte* into, int peer) const {
    if (from == into) return {};
    if (from != nullptr) HIR_TRY(Send(from, to));
    return into == nullptr ? Status() : Recv(into, peer);
  }
  int64_t Own() const { return op_.team->index * bytes_; }
  template <typename F>
  Status ForEachOther(F f) const {
    for (int64_t peer = 0; peer < op_.team->size(); ++peer) {
      if (peer != op_.team->index) HIR_TRY(f(static_cast<int>(peer)));
    }
    return {};
  }

  const NcclLibrary& nccl_;
  const NcclOp& op_;
  const CommDesc& desc_;
  const int64_t rank_;
  const cudaStream_t stream_;
  const int64_t bytes_;  // Of a chunk.
  const size_t count_;
  const ncclDataType_t type_;
  const ncclRedOp_t reduce_;
  const int root_;  // Its place in the team.
};

}  // namespace

int64_t ScratchBytes(const CommDesc& desc, const TeamInfo& team, int64_t rank) {
  const CommBytes bytes = BytesOf(desc, team, rank);
  const bool in_place = desc.src.data == desc.dst.data && bytes.src > 0 && bytes.dst > 0;
  const bool to_itself = HasHalves(desc.type) && desc.to == rank;
  return in_place && Exchanges(desc.type) && team.size() > 1 && !to_itself ? bytes.src : 0;
}

void QueueCopies(const NcclOp& op, int64_t rank) {
  const CommDesc& desc = op.desc;
  const int64_t bytes = ChunkBytes(desc);
  if (bytes == 0) return;
  if (op.scratch != nullptr) {
    const int64_t all = BytesOf(desc, *op.team, rank).src;
    op.stream->Copy({op.scratch, all}, {desc.src.data, all});
  }
  // From this rank to itself; in a team of one that is all.
  if (HasHalves(desc.type) ? desc.to != rank : op.team->size() > 1) return;
  if (desc.src.data != desc.dst.data) op.stream->Copy({desc.dst.data, bytes}, {desc.src.data, bytes});
}

bool NeedsNccl(const NcclOp& op, int64_t rank) {
  const CommDesc& desc = op.desc;
  if (desc.count == 0 || op.team->size() == 1) return false;
  if (!HasHalves(desc.type)) return true;
  return desc.to != rank && (desc.to != kNoRank || desc.from != kNoRank);
}

Status IssueCalls(const NcclLibrary& nccl, const NcclOp& op, int64_t rank, cudaStream_t stream) {
  return Calls(nccl, op, rank, stream).Issue();
}

}  // namespace hir::comm
