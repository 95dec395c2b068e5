// Which device a process that mpirun started has.
#pragma once

#include <cstdint>

#include "csrc/base/status.h"
#include "host_ir/rank/backends.h"

namespace hir::comm {

// The device of this process's rank: on its node the one of the rank's number. Where HOSTIR_RANKS_SHARE_DEVICES is 1,
// ranks beyond the last device begin again with the first; NCCL, which wants a device of its own for each rank of a
// host, is told that those are on another host, and reaches them through sockets. So two GPUs show what four ranks do.
// Errors: kUnavailable where there are fewer devices than ranks; what a test is skipped with.
Result<int64_t> DeviceOfRank(const rank::Backends& backends);

}  // namespace hir::comm
