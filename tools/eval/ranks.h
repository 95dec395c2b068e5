// Ranks: the processes that run one program together, and what they tell each other outside it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::eval {

// What a failure takes from a communication's deadline to the host, and from there to the other ranks. Who waits for
// the host, or for a rank, waits so much longer: what is reported is the communication that is stuck, by its name.
inline constexpr base::Nanos kTellTime = std::chrono::seconds(2);

// For `runs` of them one after the other.
inline base::Nanos TimesRuns(base::Nanos timeout, int64_t runs) {
  return std::min(timeout, base::Nanos::max() / (2 * runs)) * runs;
}

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

  // How long a rank waits here for others that have up to `runs` runs to do first. Each of these ends by its deadline;
  // what comes of that has to get here.
  base::Nanos TimeoutOf(int64_t runs) const { return TimesRuns(timeout_, runs) + 2 * kTellTime; }

  // What each rank gave, by rank. Errors: kDeadlineExceeded naming a rank that did not come.
  Result<std::vector<std::string>> Exchange(std::string_view what, std::string_view mine, int64_t runs = 1);
  // OK when it is OK on every rank; else the failure of the first rank that has one, naming it, the same on all. Where
  // a rank does not come, `mine` if that failed: it is why, or as good.
  Status Agree(std::string_view stage, const Status& mine, int64_t runs = 1);

  // Whether it is for this rank to say how it ended: for the first one, or for all where that did not come.
  bool Speaks() const { return rank() == 0 || !first_came_; }
  // Before this process ends without ending MPI, when mpirun ends the others: gives them a moment to come here too.
  void Part();

 private:
  explicit Ranks(base::Nanos timeout) : timeout_(timeout) {}

  Result<std::vector<std::string>> ExchangeWithin(base::Nanos timeout, std::string_view what, std::string_view mine);

  base::Nanos timeout_;
  std::unique_ptr<comm::Rendezvous> alone_;
  std::unique_ptr<comm::MpiRendezvous> mpi_;  // Null when alone.
  comm::Rendezvous* rendezvous_ = nullptr;
  int64_t num_exchanges_ = 0;
  bool first_came_ = true;  // To every exchange.
};

}  // namespace hir::eval
