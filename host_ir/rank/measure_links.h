// How fast the links between nodes are, as messages between one rank of each show.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "host_ir/rank/backends.h"
#include "multidevice/comm/communicator.h"

namespace hir::rank {

struct Link {
  double message_seconds = 0;   // Of a few bytes, one way.
  double bytes_per_second = 0;  // Beyond that.
};

// The link of the node of each of `ranks`, one rank of each node, in their order; all of them get the same. Each sends
// to the next and hears from the one before, all at once: first a few bytes, then more for as long as that takes
// milliseconds, so that links of 100 Gbit/s and of 1 Mbit/s both show what they are. Collective over `ranks`; blocks.
// Errors: those of the communicator, which is poisoned then; kDeadlineExceeded.
Result<std::vector<Link>> MeasureLinks(const Backends& backends, device::Device& device,
                                       comm::Communicator& communicator, std::span<const int64_t> ranks,
                                       base::Nanos timeout);

}  // namespace hir::rank
