#include "tools/eval/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "csrc/base/text.h"
#include "multidevice/rendezvous/memory.h"

namespace hir::eval {
namespace {

using base::Cat;

// What Open MPI, MPICH and Slurm set for the processes they start.
constexpr const char* kLaunched[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};

int64_t Seconds(base::Nanos time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

}  // namespace

Result<Ranks> Ranks::Find(base::Nanos timeout) {
  Ranks ranks(timeout);
  const bool launched =
      std::any_of(std::begin(kLaunched), std::end(kLaunched), [](const char* name) { return getenv(name) != nullptr; });
  if (launched) {
    HIR_ASSIGN(ranks.mpi_, comm::MpiRendezvous::Start(timeout));
    ranks.rendezvous_ = ranks.mpi_.get();
  } else {
    ranks.alone_ = std::make_unique<comm::MemoryRendezvous>();
    ranks.rendezvous_ = ranks.alone_.get();
  }
  return ranks;
}

Result<std::vector<std::string>> Ranks::Exchange(std::string_view what, std::string_view mine, int64_t runs) {
  return ExchangeWithin(TimeoutOf(runs), what, mine);
}

Result<std::vector<std::string>> Ranks::ExchangeWithin(base::Nanos timeout, std::string_view what,
                                                       std::string_view mine) {
  const std::string prefix = Cat("eval/", num_exchanges_++, "/");
  HIR_TRY(rendezvous_->Publish(Cat(prefix, rank()), mine));
  std::vector<std::string> all;
  const base::Nanos deadline = base::Clock::Steady().Now() + timeout;
  for (int64_t peer = 0; peer < size(); ++peer) {
    Result<std::string> got = rendezvous_->Get(Cat(prefix, peer), deadline - base::Clock::Steady().Now());
    if (!got.ok()) {
      if (peer == 0) first_came_ = false;
      return Status(Code::kDeadlineExceeded, Cat("rank ", peer, " did not come to the stage \"", what, "\" within ",
                                                 Seconds(timeout), " s (--timeout ", Seconds(timeout_), ")"));
    }
    all.push_back(*std::move(got));
  }
  return all;
}

void Ranks::Part() {
  if (size() > 1) (void)ExchangeWithin(kTellTime, "part", "").ok();
}

Status Ranks::Agree(std::string_view stage, const Status& mine, int64_t runs) {
  if (size() == 1) return mine;
  const std::string outcome = mine.ok() ? "" : Cat(static_cast<int>(mine.code()), " ", mine.message());
  // What stopped this rank stops those that communicate with it, whatever they have queued.
  const Result<std::vector<std::string>> all = Exchange(stage, outcome, mine.ok() ? runs : 1);
  if (!all.ok()) return mine.ok() ? all.status() : mine.WithContext(all.status().message());
  for (size_t peer = 0; peer < all->size(); ++peer) {
    const std::string_view theirs = (*all)[peer];
    if (theirs.empty()) continue;
    const size_t space = theirs.find(' ');
    const int64_t code = base::ParseInt(theirs.substr(0, space)).value_or(2);
    return {static_cast<Code>(code), Cat("rank ", peer, ": ", theirs.substr(space + 1))};
  }
  return {};
}

}  // namespace hir::eval
