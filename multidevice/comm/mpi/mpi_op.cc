#include "multidevice/comm/mpi/mpi_op.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/reduce.h"

namespace hir::comm {
namespace {

constexpr int64_t kInOneCallBytes = 32 << 10;  // Of a reduction: beyond, every rank adds a part.
constexpr int64_t kSegmentBytes = 1 << 20;     // Of all ranks' contributions to one.
constexpr int64_t kTags = 1 << 14;             // MPI promises 32767; even ones are send_recv's.

// MPI has addresses in it that it may use until the process ends.
void KeepForever(std::vector<ScratchMemory> scratch) {
  static auto* const kept = new std::vector<ScratchMemory>();
  for (ScratchMemory& memory : scratch) kept->push_back(std::move(memory));
}

}  // namespace

MpiTeam::~MpiTeam() {
  if (comm != MPI_COMM_NULL && !stuck) MPI_Comm_free(&comm);
}

PendingPtr MpiTransport::Make(Engine& engine, const CommOp& op) { return PendingPtr(new MpiOp(engine, *this, op)); }

base::Found MpiTransport::Progress() {
  bool happened = false;
  for (MpiOp* op : ops_) happened |= op->Test();
  return happened ? base::Found::kSomething : base::Found::kNothing;
}

MpiOp::MpiOp(Engine& engine, MpiTransport& transport, const CommOp& op)
    : engine_(engine), transport_(transport), op_(op) {
  transport.Add(*this);
}

MpiOp::~MpiOp() {
  std::erase(team().waiting, this);
  if (!idle()) {
    team().stuck = true;
    KeepForever(std::move(scratch_));
    return;
  }
  transport_.Remove(*this);
  for (ScratchMemory& scratch : scratch_) engine_.GiveScratch(std::move(scratch));
}

int64_t MpiOp::chunk_bytes() const { return ChunkBytes(desc()); }
int MpiOp::root() const { return static_cast<int>(*op_.team->info->IndexOf(desc().root)); }

// MPI moves bits: the type says how many.
MPI_Datatype MpiOp::type() const {
  switch (DTypeBytes(desc().dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    default: return MPI_UINT64_T;
  }
}

void MpiOp::Check(int error) {
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  engine_.Poison(Unavailable(base::Cat(CommName(desc()), ": mpi: ", std::string_view(text))));
}

std::byte* MpiOp::Scratch(int64_t bytes) {
  scratch_.push_back(engine_.TakeScratch(bytes));
  return scratch_.back().data;
}

void MpiOp::Begin() {
  if (desc().count == 0) {
    over_ = true;
  } else if (HasHalves(desc().type)) {
    Pass();
  } else if (team().next_call_is_due) {
    team().waiting.push_back(this);
  } else {
    Call();
  }
}

void MpiOp::Call() {
  if (Reduces(desc().type)) return StartReduce();
  Move();
}

bool MpiOp::Test() {
  if (num_requests_ == 0) return false;
  int done = 0;
  Check(MPI_Testall(num_requests_, requests_.data(), &done, MPI_STATUSES_IGNORE));
  if (done == 0) return false;
  num_requests_ = num_sends_ = 0;
  engine_.Changed(*this);
  return true;
}

void MpiOp::Advance() {
  if (Reduces(desc().type)) return AddAndGoOn();
  const bool copies = desc().type == CommType::kBroadcast && at_root();
  if (copies && desc().dst.data != desc().src.data)
    std::memcpy(desc().dst.data, desc().src.data, static_cast<size_t>(chunk_bytes()));
  over_ = true;
}

void MpiOp::Move() {
  const MPI_Comm comm = team().comm;
  const void* src = desc().src.data;
  void* dst = desc().dst.data;
  const auto own_chunk = [&](const void* whole) {
    return static_cast<const std::byte*>(whole) + index() * chunk_bytes();
  };
  switch (desc().type) {
    case CommType::kGather:
      if (at_root() && src == own_chunk(dst)) src = MPI_IN_PLACE;
      return Check(MPI_Igather(src, count(), type(), dst, count(), type(), root(), comm, Next()));
    case CommType::kAllgather:
      if (src == own_chunk(dst)) src = MPI_IN_PLACE;
      return Check(MPI_Iallgather(src, count(), type(), dst, count(), type(), comm, Next()));
    case CommType::kScatter:
      if (at_root() && dst == own_chunk(src)) dst = MPI_IN_PLACE;
      return Check(MPI_Iscatter(src, count(), type(), dst, count(), type(), root(), comm, Next()));
    case CommType::kBroadcast:
      return Check(MPI_Ibcast(at_root() ? const_cast<void*>(src) : dst, count(), type(), root(), comm, Next()));
    case CommType::kAllToAll:
      if (src == dst) {  // MPI's own in-place exchange goes step by step: a copy is faster.
        std::byte* const copy = Scratch(size() * chunk_bytes());
        std::memcpy(copy, src, static_cast<size_t>(size() * chunk_bytes()));
        src = copy;
      }
      return Check(MPI_Ialltoall(src, count(), type(), dst, count(), type(), comm, Next()));
    case CommType::kReduce:
    case CommType::kAllreduce:
    case CommType::kReduceScatter:
    case CommType::kSendRecv:
    case CommType::kCollectivePermute: break;
  }
  HIR_CHECK(false);
}

void MpiOp::Pass() {
  const TeamInfo& info = *team().info;
  const bool pair = desc().type == CommType::kSendRecv;
  const auto tag = [&](int64_t number) { return static_cast<int>(number % kTags) * 2 + (pair ? 0 : 1); };
  const bool sends = desc().to != kNoRank, receives = desc().from != kNoRank;
  if (sends) {
    const void* src = desc().src.data;
    if (receives && src == desc().dst.data) {
      std::byte* const copy = Scratch(chunk_bytes());
      std::memcpy(copy, src, static_cast<size_t>(chunk_bytes()));
      src = copy;
    }
    const int64_t number = pair ? op_.numbers.send : op_.numbers.collective;
    Check(
        MPI_Isend(src, count(), type(), static_cast<int>(*info.IndexOf(desc().to)), tag(number), team().comm, Next()));
    num_sends_ = 1;
  }
  if (receives) {
    const int64_t number = pair ? op_.numbers.recv : op_.numbers.collective;
    Check(MPI_Irecv(desc().dst.data, count(), type(), static_cast<int>(*info.IndexOf(desc().from)), tag(number),
                    team().comm, Next()));
  }
  over_ = !sends && !receives;
}

int64_t MpiOp::BlockMax() const { return std::max<int64_t>(kSegmentBytes / DTypeBytes(desc().dtype) / size(), 1); }

// Of a reduce_scatter the same part of each chunk; else the segment divided: the first ones have one more.
MpiOp::Blocks MpiOp::BlocksOf(int64_t segment) const {
  const int64_t segment_max = CallsTwice() ? BlockMax() * size() : BlockMax();
  const int64_t begin = segment * segment_max;
  const int64_t count = std::min(segment_max, desc().count - begin);
  Blocks blocks;
  int64_t start = begin;
  for (int64_t i = 0; i < size(); ++i) {
    if (!CallsTwice()) start = i * desc().count + begin;
    const int64_t own = CallsTwice() ? count / size() + (i < count % size()) : count;
    blocks.starts.push_back(static_cast<int>(start));
    blocks.counts.push_back(static_cast<int>(own));
    start += own;
  }
  return blocks;
}

void MpiOp::StartReduce() {
  const MPI_Comm comm = team().comm;
  const void* const src = desc().src.data;
  if (CallsTwice() && chunk_bytes() <= kInOneCallBytes) {
    if (desc().type == CommType::kAllreduce) {
      parts_ = Scratch(size() * chunk_bytes());
      return Check(MPI_Iallgather(src, count(), type(), parts_, count(), type(), comm, Next()));
    }
    if (at_root()) parts_ = Scratch(size() * chunk_bytes());
    return Check(MPI_Igather(src, count(), type(), parts_, count(), type(), root(), comm, Next()));
  }
  num_segments_ = base::CeilDiv(desc().count, CallsTwice() ? BlockMax() * size() : BlockMax());
  calls_left_ = num_segments_ * (CallsTwice() ? 2 : 1);
  // The first segment is as long as any.
  const int64_t block_bytes = BlocksOf(0).counts[static_cast<size_t>(index())] * DTypeBytes(desc().dtype);
  parts_ = Scratch(size() * block_bytes);
  if (desc().type == CommType::kReduce) block_ = Scratch(block_bytes);
  AskForParts();
}

void MpiOp::AskForParts() {
  asked_ = BlocksOf(segment_);
  mine_ = {};
  const int own = asked_.counts[static_cast<size_t>(index())];
  for (int i = 0; i < static_cast<int>(size()); ++i) {
    mine_.counts.push_back(own);
    mine_.starts.push_back(i * own);
  }
  team().next_call_is_due = --calls_left_ > 0;
  Check(MPI_Ialltoallv(desc().src.data, asked_.counts.data(), asked_.starts.data(), type(), parts_, mine_.counts.data(),
                       mine_.starts.data(), type(), team().comm, Next()));
}

void MpiOp::Add(const std::byte* parts, int64_t count, std::byte* dst) const {
  std::vector<const std::byte*> srcs;
  for (int64_t i = 0; i < size(); ++i) srcs.push_back(parts + i * count * DTypeBytes(desc().dtype));
  Reduce(desc().reduce, desc().dtype, srcs, dst, count);
}

void MpiOp::AddAndGoOn() {
  if (num_segments_ == 0) {  // All of it was here.
    if (parts_ != nullptr) Add(parts_, desc().count, desc().dst.data);
    over_ = true;
    return;
  }
  if (segment_ == num_segments_) {  // The last sum has come, and gone.
    over_ = true;
    return;
  }
  AddSegment();
  sum_ = std::move(asked_);
  if (++segment_ < num_segments_) AskForParts();
  if (CallsTwice()) SendSum();
  over_ = num_requests_ == 0;
  LetOthersCall();
}

void MpiOp::AddSegment() {
  const auto me = static_cast<size_t>(index());
  const int64_t start = asked_.starts[me] - (CallsTwice() ? 0 : index() * desc().count);
  std::byte* const dst = block_ != nullptr ? block_ : desc().dst.data + start * DTypeBytes(desc().dtype);
  Add(parts_, asked_.counts[me], dst);
}

void MpiOp::SendSum() {
  team().next_call_is_due = --calls_left_ > 0;
  if (desc().type == CommType::kAllreduce) {
    return Check(MPI_Iallgatherv(MPI_IN_PLACE, 0, type(), desc().dst.data, sum_.counts.data(), sum_.starts.data(),
                                 type(), team().comm, Next()));
  }
  Check(MPI_Igatherv(block_, sum_.counts[static_cast<size_t>(index())], type(), at_root() ? desc().dst.data : nullptr,
                     sum_.counts.data(), sum_.starts.data(), type(), root(), team().comm, Next()));
}

void MpiOp::LetOthersCall() {
  std::deque<MpiOp*>& waiting = team().waiting;
  while (!waiting.empty() && !team().next_call_is_due) {
    MpiOp& next = *waiting.front();
    waiting.pop_front();
    next.Call();
  }
}

void MpiOp::Cancel() {
  // Messages alone: MPI takes no collective back.
  if (!HasHalves(desc().type)) return;
  for (int i = num_sends_; i < num_requests_; ++i) MPI_Cancel(&requests_[static_cast<size_t>(i)]);
}

std::string MpiOp::WhatIsMissing(base::Nanos waited) const {
  return base::Cat("a rank of team ", team().info->ToString(), " has not taken part in ", CommName(desc()), "; rank ",
                   team().info->ranks[static_cast<size_t>(index())], " waiting ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), " ms");
}

}  // namespace hir::comm
