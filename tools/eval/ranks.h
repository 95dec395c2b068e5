// Ranks: the processes that run one program together, and what they tell each other outside it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::eval {

// One thread at a time. All but the queries are collective: every rank makes the same calls in the same order.
class Ranks {
 public:
  // The ranks that mpirun (or srun) started, or this process alone when none did. Errors: those of
  // MpiRendezvous::Start.
  static Result<Ranks> Find(base::Nanos timeout);

  int64_t rank() const { return mpi_ == nullptr ? 0 : mpi_->rank(); }
  int64_t size() const { return mpi_ == nullptr ? 1 : mpi_->size(); }
  int64_t node_rank() const { return mpi_ == nullptr ? 0 : mpi_->node_rank(); }
  comm::Rendezvous& rendezvous() { return *rendezvous_; }

  // What each rank gave, by rank. Errors: kDeadlineExceeded naming a rank that did not come.
  Result<std::vector<std::string>> Exchange(std::string_view what, std::string_view mine);
  // OK when it is OK on every rank; else the failure of the first rank that has one, naming it, the same on all.
  Status Agree(std::string_view stage, const Status& mine);

 private:
  explicit Ranks(base::Nanos timeout) : timeout_(timeout) {}

  base::Nanos timeout_;
  std::unique_ptr<comm::Rendezvous> alone_;
  std::unique_ptr<comm::MpiRendezvous> mpi_;  // Null when alone.
  comm::Rendezvous* rendezvous_ = nullptr;
  int64_t num_exchanges_ = 0;
};

}  // namespace hir::eval
