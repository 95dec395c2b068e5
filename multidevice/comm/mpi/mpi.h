// Communication between the processes that mpirun started, by MPI's non-blocking collectives.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

struct MpiOptions {
  int64_t rank = 0;  // In MPI_COMM_WORLD, too.
  int64_t size = 1;  // The first ranks of MPI_COMM_WORLD.
  int64_t generation = 0;
  base::Nanos setup_timeout = std::chrono::seconds(10);  // Of each Team, for its members to come.
  base::Nanos op_timeout = std::chrono::seconds(30);     // From the start of a communication to its end.
};

// Of the elements of one buffer of a communication: MPI counts in int.
inline constexpr int64_t kMpiElementsMax = (int64_t{1} << 31) - 1;

// True when this build has MPI.
bool HasMpiCommunicator();

// REQUIRES: MPI is started (MpiRendezvous does it) and outlives the communicator, as does `rendezvous`. Each team has
// an MPI communicator of its own. Data moves by MPI's collectives; the communicator adds up by itself, so sums have
// the bits of every other backend. One thread of its own makes progress.
//
// MPI can take back a message, but no collective. After a failure what is pending ends with its cause within a second,
// as everywhere; but MPI keeps the addresses of a collective that some rank did not join, and may read or write them
// as long as the process calls MPI. So whoever goes on after a failure keeps those buffers; hostir-eval ends.
//
// Errors:  kUnimplemented      this build has no MPI, or MPI no support for threads;
//          kResourceExhausted  Post: a buffer of more than kMpiElementsMax elements.
Result<std::unique_ptr<Communicator>> CreateMpi(const MpiOptions& options, Rendezvous& rendezvous);

}  // namespace hir::comm
