// Communication between processes through UCX: shared memory on a node, TCP or RDMA between nodes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// Measured on one node of two cores, 2 and 4 ranks: up to here every type takes half to two thirds of the time that it
// takes by messages (allreduce of 64 KiB: 7 us instead of 31 on 2 ranks, 90 instead of 149 on 4).
inline constexpr int64_t kSharedBytesMax = 64 * 1024;

struct UcxOptions {
  int64_t rank = 0;
  int64_t size = 1;                                      // At most 1024.
  std::vector<int64_t> absent = {};                      // Ranks that are not there, ascending, and in no team.
  int64_t generation = 0;                                // Messages of another generation are dropped (low 8 bits).
  base::Nanos setup_timeout = std::chrono::seconds(10);  // Of Create and of each Team.
  base::Nanos op_timeout = std::chrono::seconds(30);     // From the start of a communication to its end.
  // UCX's names of the transports to use; the environment's UCX_TLS comes first. "": shared memory, and TCP beside it
  // unless every rank runs where this one does: UCX would send a part of every large message through it. Not cma: it
  // aborts the process whose peer dies while it reads the peer's memory.
  std::string transports = "";
  // Of one rank's contribution to a collective: up to here the ranks of a team that share memory do without UCX. 0:
  // never. Where ranks say different numbers, a team takes the least.
  int64_t shared_bytes_max = kSharedBytesMax;
};

// True when this build has UCX.
bool HasUcx();

// Collective over all ranks; `rendezvous` outlives the communicator. Threads that
// post or wait make progress, and one of its own when they do not: it sleeps when nothing is pending.
//
// UCX may notice that a peer died, or not: over shared memory late or never. Whoever watches the processes calls Abort.
//
// Errors:  kUnimplemented     this build has no UCX;
//          kDeadlineExceeded  a rank did not come in time; the message names it;
//          kUnavailable       UCX could not start or connect; the message has its reason.
Result<std::unique_ptr<Communicator>> CreateUcx(const UcxOptions& options, Rendezvous& rendezvous);

}  // namespace hir::comm
