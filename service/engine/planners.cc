#include "service/engine/planners.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "csrc/base/digest.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// A request further behind hears no other place until it is nearer.
constexpr int kPlacesTold = 64;

pb::PlanProgress At(pb::PlanProgress::Stage stage, int64_t plans_before = 0) {
  pb::PlanProgress progress;
  progress.set_stage(stage);
  progress.set_plans_before(plans_before);
  return progress;
}

}  // namespace

Planners::Planners(PlannerOptions options, const Limits& limits, std::shared_ptr<Metrics> metrics,
                   const base::Clock& clock, Hooks hooks)
    : options_(std::move(options)),
      limits_(limits),
      metrics_(std::move(metrics)),
      clock_(clock),
      hooks_(std::move(hooks)),
      queued_bytes_("queued_plans_bytes_max", "bytes of programs that wait for the planner",
                    limits.queued_plans_bytes_max),
      deaths_(limits, clock),
      seconds_(limits.principal_plan_seconds_max, clock) {
  // At once, so that the first program does not wait for it.
  const std::scoped_lock lock(mutex_);
  AddLane();
}

Planners::~Planners() { Stop(Unavailable("the daemon is shutting down")); }

void Planners::Stop(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;  // From here on there are no new lanes.
  }
  for (const auto& lane : lanes_) {
    lane->planner.Interrupt(cause);
    lane->changed.Signal();
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
  std::list<Asked> unplanned;
  {
    const std::scoped_lock lock(mutex_);
    unplanned.swap(asked_);
    (void)waiting_.RemoveAll();
  }
  for (const Asked& asked : unplanned) {
    for (const Waiter& waiter : asked->waiting) waiter.done(cause);
  }
}

void Planners::Ask(Wanted wanted, Waiter waiter) {
  std::unique_lock lock(mutex_);
  for (const Asked& asked : asked_) {
    const Wanted& other = asked->wanted;
    if (other.text != wanted.text || other.of != wanted.of || other.sizes != wanted.sizes) continue;
    metrics_->cache_misses.Add();
    asked->waiting.push_back(waiter);
    const pb::PlanProgress latest = asked->progress;
    lock.unlock();
    if (waiter.progress) waiter.progress(latest);
    return;
  }
  if (Plan found = hooks_.find(wanted)) {  // It was made since the caller looked.
    lock.unlock();
    metrics_->cache_hits.Add();
    return waiter.done(std::move(found));
  }
  metrics_->cache_misses.Add();
  const Asked asked = std::make_shared<Request>();
  if (Status refused = Admit(wanted, waiter.owner, asked->bytes); !refused.ok()) {
    lock.unlock();
    return waiter.done(std::move(refused));
  }
  const int64_t bytes = std::ssize(wanted.text);
  asked->wanted = std::move(wanted);
  asked->owner = waiter.owner;
  asked->waiting.push_back(std::move(waiter));
  asked_.push_back(asked);
  waiting_.Push(asked->owner, asked, bytes);
  lock.unlock();
  TellQueued();  // Before it can begin.
  lock.lock();
  Dispatch();
}

Status Planners::Admit(const Wanted& wanted, const Owner& owner, Charge& bytes) {
  if (stopping_) return Unavailable("the daemon is shutting down");
  HIR_TRY(deaths_.Check(wanted.text));
  HIR_TRY(seconds_.Check(owner.principal));
  const int64_t its =
      std::ranges::count_if(asked_, [&](const Asked& asked) { return asked->owner.session == owner.session; });
  if (its >= limits_.queued_plans_max) {
    return ResourceExhausted(base::Cat("queued_plans_max = ", limits_.queued_plans_max,
                                       ": as many programs of this session wait for the planner; try again later"));
  }
  HIR_ASSIGN(bytes, queued_bytes_.Take(
                        static_cast<int64_t>(wanted.text.size() + wanted.source.ByteSizeLong() + sizeof(Request))));
  return {};
}

void Planners::Cancel(const Owner& owner, const Status& cause) {
  std::vector<Waiter> cancelled;
  {
    const std::scoped_lock lock(mutex_);
    cancelled = Drop([&](const Request& request, const Waiter& waiter) {
      // Whoever asked first stands for a plan that has begun.
      const bool stands = request.begun && std::ranges::all_of(request.waiting, [&](const Waiter& one) {
                            return one.owner.session == owner.session;
                          });
      return waiter.owner.session == owner.session && !stands;
    });
    (void)waiting_.Remove(owner);
    Dispatch();
  }
  for (const Waiter& waiter : cancelled) waiter.done(cause);
}

std::vector<Planners::Waiter> Planners::Drop(const std::function<bool(const Request&, const Waiter&)>& drops) {
  std::vector<Waiter> dropped;
  std::vector<Owner> left;  // Who waits no more for what has the owner's turn.
  for (const Asked& asked : asked_) {
    std::vector<Waiter> stay;
    for (Waiter& waiter : asked->waiting) (drops(*asked, waiter) ? dropped : stay).push_back(waiter);
    asked->waiting = std::move(stay);
    const bool has_left = std::ranges::none_of(
        asked->waiting, [&](const Waiter& waiter) { return waiter.owner.session == asked->owner.session; });
    if (has_left && !asked->begun) left.push_back(asked->owner);
  }
  std::erase_if(asked_, [](const Asked& asked) { return asked->waiting.empty(); });
  for (const Owner& owner : left) {
    for (const Asked& asked : waiting_.Remove(owner)) {
      if (asked->waiting.empty()) continue;
      asked->owner = asked->waiting.front().owner;
      waiting_.Push(asked->owner, asked, std::ssize(asked->wanted.text));
    }
  }
  return dropped;
}

int64_t Planners::num_busy() const {
  return std::ranges::count_if(lanes_, [](const auto& lane) { return lane->asked != nullptr; });
}

bool Planners::MayBegin(const std::string& principal, const std::string& session, bool several) const {
  const int64_t free = limits_.planners - num_busy();
  if (free != 1) return free > 1;
  return std::ranges::none_of(lanes_, [&](const auto& lane) {
    if (lane->asked == nullptr || lane->asked->owner.principal != principal) return false;
    return several || lane->asked->owner.session == session;
  });
}

void Planners::Dispatch() {
  if (stopping_) return;
  const bool several = !waiting_.empty() && hooks_.several_principals();
  for (;;) {
    std::optional<FairQueue<Asked>::Turn> turn =
        waiting_.Pop([&](const std::string& principal, const std::string& session) {
          return MayBegin(principal, session, several);
        });
    if (!turn) return;
    auto lane = std::ranges::find_if(lanes_, [](const auto& one) { return one->asked == nullptr; });
    if (lane == lanes_.end()) {
      AddLane();
      lane = std::prev(lanes_.end());
    }
    turn->item->begun = true;
    (*lane)->asked = std::move(turn->item);
    (*lane)->changed.Signal();
  }
}

void Planners::AddLane() {
  Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>(options_));
  lane.thread = std::thread([this, &lane] { Loop(lane); });
}

void Planners::Tell(Request& request, const pb::PlanProgress& progress) {
  std::vector<Progress> listening;
  {
    const std::scoped_lock lock(mutex_);
    request.progress = progress;
    for (const Waiter& waiter : request.waiting) {
      if (waiter.progress) listening.push_back(waiter.progress);
    }
  }
  for (const Progress& listener : listening) listener(progress);
}

void Planners::TellQueued() {
  std::vector<std::pair<Progress, pb::PlanProgress>> told;
  const auto tell = [&](Request& request, int64_t before) {
    if (request.progress.stage() != 0 && request.progress.plans_before() == before) return;
    request.progress = At(pb::PlanProgress::STAGE_QUEUED, before);
    for (const Waiter& waiter : request.waiting) {
      if (waiter.progress) told.emplace_back(waiter.progress, request.progress);
    }
  };
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) return;
    FairQueue<Asked> rest = waiting_;
    const bool several = hooks_.several_principals();
    const auto next = rest.Pop([&](const std::string& principal, const std::string& session) {
      return MayBegin(principal, session, several);
    });
    if (next) tell(*next->item, 0);
    // As if each took as long: nobody knows better.
    int64_t before = num_busy() + (next ? 1 : 0);
    for (int i = 0; i < kPlacesTold; ++i) {
      const auto turn = rest.Pop();
      if (!turn) break;
      rest.Charge(turn->owner, std::chrono::seconds(1));
      tell(*turn->item, before++);
    }
    for (const Asked& asked : asked_) {
      if (!asked->begun && asked->progress.stage() == 0) tell(*asked, before);
    }
  }
  for (const auto& [listener, progress] : told) listener(progress);
}

void Planners::Loop(Lane& lane) {
  // A failure shows when there is a program to plan.
  if (const Status status = lane.planner.Start(); !status.ok())
    spdlog::error("planner error={}", base::Quoted(status.ToString()));
  for (;;) {
    lane.changed.Clear();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    const Asked asked = lane.asked;
    lock.unlock();
    if (asked == nullptr) {
      lane.planner.Watch(lane.changed.fd(), [this](int64_t pid, std::string_view how) {
        metrics_->planner_deaths.Add();
        spdlog::warn("planner={} ended at rest error={}", pid, base::Quoted(how));
      });
      continue;
    }
    const base::Nanos start = clock_.Now();
    const Result<Plan> made = Make(lane, *asked);
    Finish(lane, asked, made, clock_.Now() - start);
  }
}

void Planners::Finish(Lane& lane, const Asked& asked, const Result<Plan>& made, base::Nanos took) {
  std::vector<Waiter> waiting, refused;
  Status over;  // The limit, if the principal has reached it.
  {
    const std::scoped_lock lock(mutex_);
    waiting = std::move(asked->waiting);
    std::erase(asked_, asked);
    lane.asked = nullptr;
    waiting_.Charge(asked->owner, took);
    const std::string& principal = asked->owner.principal;
    seconds_.Charge(principal, took);
    if (over = seconds_.Check(principal); !over.ok()) {
      refused = Drop([&](const Request& request, const Waiter& waiter) {
        return !request.begun && request.owner.principal == principal && waiter.owner.principal == principal;
      });
    }
    Dispatch();
  }
  for (const Waiter& waiter : waiting) {
    if (waiter.progress) waiter.progress(At(pb::PlanProgress::STAGE_DONE));
    waiter.done(made);
  }
  for (const Waiter& waiter : refused) waiter.done(over);
  TellQueued();
}

void Planners::CountDeath(const Request& request, const PlannerProcess::Outcome& outcome) {
  metrics_->planner_deaths.Add();
  const std::scoped_lock lock(mutex_);
  if (outcome.of_it) deaths_.Add(request.wanted.text, outcome.of_memory);
  spdlog::error("planner request={} deaths={} error={}", request.wanted.request, deaths_.count(request.wanted.text),
                base::Quoted(outcome.status.ToString()));
}

Result<Planners::Plan> Planners::Make(Lane& lane, const Request& request) {
  const Wanted& wanted = request.wanted;
  PlannerProcess& planner = lane.planner;
  const std::string digest = base::Digest(wanted.text);
  const base::Nanos start = base::Clock::Steady().Now();
  PlannerProcess::Outcome outcome = planner.MakePlan(
      {wanted.source, wanted.sizes, digest, std::chrono::milliseconds(limits_.plan_timeout_ms)},
      {.sent =
           [&] {
             spdlog::info("planning planner={} request={} bytes={} digest={}", planner.pid(), wanted.request,
                          wanted.text.size(), digest);
           },
       .began = [&] { spdlog::debug("planner={} began request={}", planner.pid(), wanted.request); },
       .progress = [&](const pb::PlanProgress& progress) { Tell(*lane.asked, progress); },
       .again =
           [&](std::string_view why, std::string_view how) {
             metrics_->planner_deaths.Add();
             spdlog::warn("planner request={} {}, planned again error={}", wanted.request, why, base::Quoted(how));
           }});
  const base::Nanos took = base::Clock::Steady().Now() - start;
  metrics_->plan_time.Add(took);
  metrics_->latest.Add({.kind = "plan",
                        .number = wanted.request,
                        .name = outcome.status.ok() ? std::string_view(outcome.plan.name()) : std::string_view(digest),
                        .code = outcome.status.code(),
                        .error = outcome.status.message(),
                        .took = took});
  if (outcome.ended) CountDeath(request, outcome);
  HIR_TRY(outcome.status);
  {
    const std::scoped_lock lock(mutex_);
    deaths_.Forget(wanted.text);
  }
  return hooks_.keep(wanted, request.owner, std::move(outcome.plan));
}

int64_t Planners::num_queued() const {
  const std::scoped_lock lock(mutex_);
  return std::ssize(asked_);
}

std::vector<int64_t> Planners::pids() const {
  const std::scoped_lock lock(mutex_);
  std::vector<int64_t> pids;
  for (const auto& lane : lanes_) pids.push_back(lane->planner.pid());
  return pids;
}

}  // namespace hir::service
