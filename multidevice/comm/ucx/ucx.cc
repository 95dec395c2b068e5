#include "multidevice/comm/ucx/ucx.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "multidevice/comm/engine/engine_communicator.h"
#include "multidevice/comm/ucx/locality.h"
#include "multidevice/comm/ucx/tag.h"
#include "multidevice/comm/ucx/ucx_op.h"
#include "multidevice/comm/ucx/ucx_team.h"
#include "multidevice/comm/ucx/ucx_worker.h"

namespace hir::comm {
namespace {

using base::Cat;

// What the teams of one rank share in all, before new ones do without: of 64 KiB a slot, 64 teams of two ranks or 16
// of eight.
constexpr int64_t kSharedMemoryMax = 64 << 20;

class UcxCommunicator final : public EngineCommunicator {
 public:
  UcxCommunicator(const UcxOptions& options, Rendezvous& rendezvous, std::unique_ptr<UcxWorker> worker,
                  std::vector<std::string> domains)
      : EngineCommunicator(options.rank, options.size, options.op_timeout,
                           std::make_unique<UcxTransport>(options.rank, options.generation, std::move(worker))),
        options_(options),
        rendezvous_(rendezvous),
        domains_(std::move(domains)) {}

 private:
  Result<std::unique_ptr<TransportTeam>> MakeTeam(std::span<const int64_t> ranks, int64_t lane,
                                                  int64_t number) override {
    if (number >= kTeamsMax) return ResourceExhausted(Cat("limit teams_max: ", kTeamsMax, " teams exist"));
    auto team = std::make_unique<UcxTeam>();
    team->number = number;
    const TeamExchange exchange = {
        .rendezvous = rendezvous_,
        .key = Cat("g", options_.generation, "/team/", base::JoinInts(ranks, ","), "/", lane, "/"),
        .deadline = base::Clock::Steady().Now() + options_.setup_timeout,
        .ranks = ranks,
        .rank = rank()};
    const bool shares = ShareMemory(ranks) && shared_memory_ < kSharedMemoryMax;
    HIR_TRY(exchange.Run(shares ? options_.shared_bytes_max : 0, *team));
    if (team->slots != nullptr) shared_memory_ += team->slots->bytes();
    return std::unique_ptr<TransportTeam>(std::move(team));
  }

  bool ShareMemory(std::span<const int64_t> ranks) const {
    return std::all_of(ranks.begin(), ranks.end(), [this](int64_t peer) {
      return domains_[static_cast<size_t>(peer)] == domains_[static_cast<size_t>(rank())];
    });
  }

  int Channel(const CommDesc& desc, const TransportTeam& team) const override {
    return RouteOf(desc, static_cast<const UcxTeam&>(team));
  }

  const UcxOptions options_;
  Rendezvous& rendezvous_;
  const std::vector<std::string> domains_;  // Of the memory that a rank shares with others, by rank.
  int64_t shared_memory_ = 0;               // Bytes, of all teams.
};

constexpr std::string_view kShared = "posix,sysv,self";

bool IsAbsent(const UcxOptions& options, int64_t rank) {
  return std::binary_search(options.absent.begin(), options.absent.end(), rank);
}

// What every rank has published under `what`, by rank; `mine` is this one's.
Result<std::vector<std::string>> Exchange(const UcxOptions& options, Rendezvous& rendezvous, std::string_view what,
                                          std::string mine, base::Nanos deadline) {
  const std::string key = Cat("g", options.generation, "/", what, "/");
  HIR_TRY(rendezvous.Publish(Cat(key, options.rank), mine));
  std::vector<std::string> all(static_cast<size_t>(options.size));
  for (int64_t peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank || IsAbsent(options, peer)) continue;
    Result<std::string> theirs = rendezvous.Get(Cat(key, peer), deadline - base::Clock::Steady().Now());
    if (!theirs.ok()) return theirs.status().WithContext(Cat("ucx: rank ", peer, " did not come"));
    all[static_cast<size_t>(peer)] = std::move(*theirs);
  }
  all[static_cast<size_t>(options.rank)] = std::move(mine);
  return all;
}

}  // namespace

bool HasUcx() { return true; }

Result<std::unique_ptr<Communicator>> CreateUcx(const UcxOptions& options, Rendezvous& rendezvous) {
  if (options.size < 1 || options.size > kRanksMax) {
    return InvalidArgument(Cat("ucx: size is ", options.size, ", limit ranks_max: ", kRanksMax));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument(Cat("ucx: rank ", options.rank, " is not in [0, ", options.size, ")"));
  }
  const base::Nanos deadline = base::Clock::Steady().Now() + options.setup_timeout;
  HIR_ASSIGN(const std::vector<std::string> domains,
             Exchange(options, rendezvous, "domain", SharedMemoryDomain(), deadline));
  const std::string& own = domains[static_cast<size_t>(options.rank)];
  // Whoever is absent has none.
  const bool near = std::all_of(domains.begin(), domains.end(),
                                [&](const std::string& domain) { return domain == own || domain.empty(); });
  const std::string chosen = near ? std::string(kShared) : Cat(kShared, ",tcp");
  HIR_ASSIGN(std::unique_ptr<UcxWorker> worker,
             UcxWorker::Create(options.transports.empty() ? chosen : options.transports));
  HIR_ASSIGN(std::string address, worker->Address());
  HIR_ASSIGN(const std::vector<std::string> addresses,
             Exchange(options, rendezvous, "ucx", std::move(address), deadline));
  for (int64_t peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank && !IsAbsent(options, peer))
      HIR_TRY(worker->Connect(peer, addresses[static_cast<size_t>(peer)]));
  }
  return std::make_unique<UcxCommunicator>(options, rendezvous, std::move(worker), domains);
}

}  // namespace hir::comm
