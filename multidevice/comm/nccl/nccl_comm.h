// NcclComm: one of NCCL's communicators, from its making, which others have to join, to its end.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/comm/nccl/library.h"

namespace hir::comm {

// Join makes a non-blocking one: no call waits for a peer, Await does, up to a deadline; but each of
// its launches would start a thread. So it only serves to split off blocking ones, whose calls wait
// for a peer when they have to connect to it first.
//
// Threads: one at a time, but for Abort, which may end what another thread is in.
class NcclComm {
 public:
  // Says that waiting is pointless: the communicator has failed.
  using GivesUp = std::function<bool()>;

  struct Membership {
    int size = 1;
    int rank = 0;
  };

  // What the first member makes, and all bring.
  static Result<ncclUniqueId> NewId(const NcclLibrary& nccl);

  // With the other members of `id`. Waits for them until `deadline`.
  static Result<std::unique_ptr<NcclComm>> Join(const NcclLibrary& nccl, const ncclUniqueId& id, Membership membership,
                                                base::Nanos deadline, const GivesUp& gives_up);
  // The same ranks as a blocking communicator, in which this one is `rank`. Collective over all of
  // this communicator, which Join has made.
  Result<std::unique_ptr<NcclComm>> SplitAll(int rank, base::Nanos deadline, const GivesUp& gives_up);
  // Aborted if it was neither closed nor aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Until what was begun is done: kDeadlineExceeded, kCancelled when `gives_up`, or NCCL's error.
  Status Await(std::string_view what, base::Nanos deadline, const GivesUp& gives_up) const;
  // NCCL's error, if it has found one by itself.
  Status AsyncError() const;

  // Ends in order. REQUIRES: nothing is in flight.
  void Close(base::Nanos deadline);
  // What is in flight ends, without its result. No call but the destructor follows.
  void Abort();

  ncclComm_t handle() const { return *handle_; }

 private:
  explicit NcclComm(const NcclLibrary& nccl) : nccl_(nccl), handle_(std::make_unique<ncclComm_t>(nullptr)) {}

  const NcclLibrary& nccl_;
  // NCCL writes it when the communicator is made, which may be later: it stays where it is.
  std::unique_ptr<ncclComm_t> handle_;
};

}  // namespace hir::comm
