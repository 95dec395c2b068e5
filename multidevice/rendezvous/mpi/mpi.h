// The rendezvous of processes that mpirun started.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// True when this build has MPI.
bool HasMpi();

// Every rank keeps all values: what one publishes is sent to all others. One thread of its own makes all its calls of
// MPI and sleeps between them, so ranks that wait leave the processors to those that work.
//
// A value published under one key by two ranks at once must be the same: only the ranks that know one already refuse
// another (kAlreadyExists).
class MpiRendezvous : public Rendezvous {
 public:
  // Starts MPI: once in a process. Collective over all ranks of MPI_COMM_WORLD. Errors: kUnimplemented: this build has
  // no MPI; kUnavailable: MPI could not start.
  static Result<std::unique_ptr<MpiRendezvous>> Start(base::Nanos end_timeout = std::chrono::seconds(120));
  // Ends MPI. Collective too: returns when every rank has come to it, values are delivered, and no rank calls Publish
  // or Get any more. A rank that does not come within `end_timeout` is waited for no longer, and MPI is left as it is:
  // only the end of the process can follow.
  ~MpiRendezvous() override = default;

  virtual int64_t rank() const = 0;  // In [0, size()).
  virtual int64_t size() const = 0;
  virtual int64_t node_rank() const = 0;  // Among the ranks of this machine: which of its devices to take.
};

}  // namespace hir::comm
