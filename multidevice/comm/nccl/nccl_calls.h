// Which NCCL calls, and which copies before them, a communication is.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "csrc/base/status.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/nccl/library.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// One post. A member's rank in NCCL is its place in the team.
struct NcclOp {
  CommDesc desc = {};
  const TeamInfo* team = nullptr;
  ncclComm_t comm = nullptr;  // Null for a team of one, which needs none.
  device::Stream* stream = nullptr;
  std::byte* scratch = nullptr;  // ScratchBytes of it.
  bool by_peers = false;         // PeerMemory carries it out, without NCCL.
};

// What NCCL cannot do in place is sent from a copy: as many bytes as that takes.
int64_t ScratchBytes(const CommDesc& desc, const TeamInfo& team, int64_t rank);

// Queues what NCCL has no part in: the copy in scratch, what a rank alone sends to itself.
void QueueCopies(const NcclOp& op, int64_t rank);
// Whether anything is left for NCCL to do on this rank.
bool NeedsNccl(const NcclOp& op, int64_t rank);
// The calls, inside a group. REQUIRES: NeedsNccl.
Status IssueCalls(const NcclLibrary& nccl, const NcclOp& op, int64_t rank, cudaStream_t stream);

}  // namespace hir::comm
