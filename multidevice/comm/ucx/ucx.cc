#include "multidevice/comm/ucx/ucx.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"
#include "multidevice/comm/ucx/engine.h"
#include "multidevice/comm/ucx/tag.h"
#include "multidevice/comm/ucx/ucx_worker.h"

namespace hir::comm {
namespace {

using base::Cat;

class UcxCommunicator final : public Communicator {
 public:
  UcxCommunicator(const UcxOptions& options, Rendezvous& rendezvous,
                  std::unique_ptr<UcxWorker> worker)
      : options_(options),
        rendezvous_(rendezvous),
        teams_(options.rank, options.size),
        engine_({.rank = options.rank,
                 .generation = options.generation,
                 .op_timeout = options.op_timeout},
                std::move(worker)) {}

  int64_t rank() const override { return options_.rank; }
  int64_t size() const override { return options_.size; }

  Result<TeamId> Team(std::span<const int64_t> ranks, int64_t lane) override {
    HIR_TRY(engine_.failure());
    HIR_ASSIGN(const std::optional<TeamId> known, teams_.Find(ranks, lane));
    if (known) return *known;
    if (teams_.size() >= kTeamsMax)
      return ResourceExhausted(Cat("limit teams_max: ", kTeamsMax, " teams exist"));
    HIR_ASSIGN(std::vector<int64_t> numbers, ExchangeNumbers(ranks, lane));
    const TeamId id = teams_.Add(ranks, lane);
    ucx_teams_.push_back({.info = teams_.Get(id),
                          .number = static_cast<int64_t>(id),
                          .number_at = std::move(numbers)});
    return id;
  }

  Status Post(const CommDesc& desc, device::Stream& stream) override {
    HIR_TRY(engine_.failure());
    const TeamInfo* const team = teams_.Get(desc.team);
    HIR_TRY(CheckDesc(desc, team, rank()));
    UcxPost& post = PostFor(stream);
    post.ops.push_back({.desc = desc,
                        .team = &ucx_teams_[static_cast<size_t>(desc.team)],
                        .numbers = numbering_.Next(desc)});
    if (!in_group_) stream.Enqueue(post);
    return {};
  }

  Status GroupBegin() override {
    if (in_group_) return {Code::kFailedPrecondition, "group: groups do not nest"};
    in_group_ = true;
    return {};
  }
  Status GroupEnd() override {
    if (!in_group_) return {Code::kFailedPrecondition, "group: it has not begun"};
    in_group_ = false;
    for (const auto& [stream, post] : group_) stream->Enqueue(*post);
    group_.clear();
    return {};
  }

  void Abort(Status cause) override { engine_.Poison(cause); }
  CommProgress Progress() const override { return engine_.progress(); }

 private:
  UcxPost& PostFor(device::Stream& stream) {
    for (const auto& [known, post] : group_) {
      if (known == &stream) return *post;
    }
    UcxPost& post = engine_.NewPost();
    if (in_group_) group_.emplace_back(&stream, &post);
    return post;
  }

  // Each member numbers its teams as they come; the others put its number into what they send it.
  Result<std::vector<int64_t>> ExchangeNumbers(std::span<const int64_t> ranks, int64_t lane) {
    const std::string key =
        Cat("g", options_.generation, "/team/", base::JoinInts(ranks, ","), "/", lane, "/");
    HIR_TRY(rendezvous_.Publish(Cat(key, rank()), std::to_string(teams_.size())));
    const base::Nanos deadline = base::Clock::Steady().Now() + options_.setup_timeout;
    std::vector<int64_t> numbers;
    for (int64_t peer : ranks) {
      if (peer == rank()) {
        numbers.push_back(teams_.size());
        continue;
      }
      const Result<std::string> text =
          rendezvous_.Get(Cat(key, peer), deadline - base::Clock::Steady().Now());
      if (!text.ok())
        return text.status().WithContext(
            Cat("team [", base::JoinInts(ranks, ", "), "]: rank ", peer));
      const std::optional<int64_t> number = base::ParseInt(*text);
      if (!number) return Internal(Cat("rendezvous: ", key, peer, " holds no number"));
      numbers.push_back(*number);
    }
    return numbers;
  }

  const UcxOptions options_;
  Rendezvous& rendezvous_;
  TeamTable teams_;
  std::deque<UcxTeam> ucx_teams_;  // By TeamId; stays put.
  Numbering numbering_;
  bool in_group_ = false;
  std::vector<std::pair<device::Stream*, UcxPost*>> group_;
  Engine engine_;
};

}  // namespace

bool HasUcx() { return true; }

Result<std::unique_ptr<Communicator>> CreateUcx(const UcxOptions& options, Rendezvous& rendezvous) {
  if (options.size < 1 || options.size > kRanksMax) {
    return InvalidArgument(Cat("ucx: size is ", options.size, ", limit ranks_max: ", kRanksMax));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument(Cat("ucx: rank ", options.rank, " is not in [0, ", options.size, ")"));
  }
  HIR_ASSIGN(std::unique_ptr<UcxWorker> worker, UcxWorker::Create(options.transports));
  HIR_ASSIGN(const std::string address, worker->Address());
  const std::string key = Cat("g", options.generation, "/ucx/");
  HIR_TRY(rendezvous.Publish(Cat(key, options.rank), address));
  const base::Nanos deadline = base::Clock::Steady().Now() + options.setup_timeout;
  for (int64_t peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    const Result<std::string> remote =
        rendezvous.Get(Cat(key, peer), deadline - base::Clock::Steady().Now());
    if (!remote.ok()) return remote.status().WithContext(Cat("ucx: rank ", peer, " did not come"));
    HIR_TRY(worker->Connect(peer, *remote));
  }
  return std::make_unique<UcxCommunicator>(options, rendezvous, std::move(worker));
}

}  // namespace hir::comm
