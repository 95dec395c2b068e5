#include "multidevice/comm/local/world.h"

#include <list>
#include <string>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/local/exchange.h"
#include "multidevice/comm/local/scheduler.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"

namespace hir::comm {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(Exchange& exchange, int64_t rank, int64_t size)
      : exchange_(exchange), rank_(rank), size_(size), teams_(rank, size) {}
  ~LocalCommunicator() override {
    for (const auto& post : posts_) HIR_CHECK(exchange_.IsOver(*post));
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  Result<TeamId> Team(std::span<const int64_t> ranks, int64_t lane) override {
    HIR_TRY(exchange_.Failure(rank_));
    HIR_ASSIGN(const std::optional<TeamId> known, teams_.Find(ranks, lane));
    return known ? *known : teams_.Add(ranks, lane);
  }

  Status Post(const CommDesc& desc, device::Stream& stream) override {
    HIR_TRY(exchange_.Failure(rank_));
    const TeamInfo* const team = teams_.Get(desc.team);
    HIR_TRY(CheckDesc(desc, team, rank_));
    LocalPost& post = PostFor(stream);
    post.ops.push_back({.desc = desc, .team = team, .numbers = numbering_.Next(desc)});
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
    for (const auto& [stream, post] : std::exchange(group_, {})) stream->Enqueue(*post);
    return {};
  }

  void Abort(Status cause) override { exchange_.Poison(rank_, cause); }
  CommProgress Progress() const override { return exchange_.Progress(rank_); }

 private:
  // The post of this group for `stream`, or a new one.
  LocalPost& PostFor(device::Stream& stream) {
    for (const auto& [known, post] : group_) {
      if (known == &stream) return *post;
    }
    posts_.remove_if([this](const auto& post) { return exchange_.IsOver(*post); });
    posts_.push_back(std::make_unique<LocalPost>(exchange_, rank_));
    if (in_group_) group_.emplace_back(&stream, posts_.back().get());
    return *posts_.back();
  }

  Exchange& exchange_;
  const int64_t rank_;
  const int64_t size_;
  TeamTable teams_;
  Numbering numbering_;
  std::list<std::unique_ptr<LocalPost>> posts_;
  bool in_group_ = false;
  std::vector<std::pair<device::Stream*, LocalPost*>> group_;
};

// A rank's streams run as items of the one ready list.
class RankExecutor final : public device::Executor {
 public:
  RankExecutor(Scheduler& scheduler, int64_t rank) : scheduler_(scheduler), rank_(rank) {}
  int num_threads() const override { return 1; }
  bool direct() const override { return false; }  // Everything is an item of the ready list.
  bool Post(int64_t stream, std::function<void()> work) override {
    scheduler_.Ready(base::Cat("rank ", rank_, " runs stream ", stream), std::move(work));
    return true;
  }
  bool Block(std::unique_lock<std::mutex>& lock, std::condition_variable&, const std::function<bool()>& done,
             base::Nanos timeout) override {
    return scheduler_.Block(lock, done, timeout);
  }

 private:
  Scheduler& scheduler_;
  const int64_t rank_;
};

class LocalWorld final : public World {
 public:
  explicit LocalWorld(WorldOptions options)
      : options_(std::move(options)), scheduler_(options_.seed), exchange_(options_, scheduler_) {
    for (int64_t rank = 0; rank < options_.size; ++rank) executors_.emplace_back(scheduler_, rank);
  }

  std::unique_ptr<Communicator> Join(int64_t rank) override {
    HIR_CHECK(rank >= 0 && rank < options_.size);
    return std::make_unique<LocalCommunicator>(exchange_, rank, options_.size);
  }
  device::Executor& executor(int64_t rank) override {
    HIR_CHECK(rank >= 0 && rank < options_.size);
    return executors_[static_cast<size_t>(rank)];
  }
  void Run(const std::function<void(int64_t)>& body) override {
    std::vector<std::function<void()>> bodies;
    for (int64_t rank = 0; rank < options_.size; ++rank) bodies.push_back([&body, rank] { body(rank); });
    scheduler_.Run(bodies);
  }
  void RunUntilIdle() override { scheduler_.RunUntilIdle(); }
  const base::Clock& clock() const override { return scheduler_; }
  std::vector<std::string> trace() const override { return scheduler_.trace(); }

 private:
  const WorldOptions options_;
  Scheduler scheduler_;
  Exchange exchange_;
  std::deque<RankExecutor> executors_;
};

}  // namespace

std::unique_ptr<World> World::Create(WorldOptions options) {
  HIR_CHECK(options.size > 0);
  return std::make_unique<LocalWorld>(std::move(options));
}

}  // namespace hir::comm
