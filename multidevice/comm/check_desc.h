// The rules at CommDesc, checked once for all backends, and what follows from them.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// "allgather #17", how every message names a communication.
std::string CommName(const CommDesc& desc);

// What Communicator::Post returns for `desc` before anything is queued. `team` is desc.team, or
// null when there is no such team; `rank` is this rank of the communicator.
Status CheckDesc(const CommDesc& desc, const TeamInfo* team, int64_t rank);

// The rest REQUIREs that CheckDesc passed.

inline int64_t ChunkBytes(const CommDesc& desc) { return desc.count * DTypeBytes(desc.dtype); }

// What is read and written, in bytes; 0 for a half that is absent.
struct CommBytes {
  int64_t src = 0;
  int64_t dst = 0;
};
CommBytes BytesOf(const CommDesc& desc, const TeamInfo& team, int64_t rank);

}  // namespace hir::comm
