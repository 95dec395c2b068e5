// Planners: the programs that wait for a plan, the processes that make plans, and whose turn it is.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/engine/fair_queue.h"
#include "service/engine/limits.h"
#include "service/engine/plan_seconds.h"
#include "service/engine/planner_deaths.h"
#include "service/engine/program.h"
#include "service/metrics/metrics.h"
#include "service/os/wakeup.h"
#include "service/store/budget.h"
#include "service/supervise/planner_process.h"

namespace hir::service {

// Turns are fair by the time that plans take, between principals and between the sessions of one. The last planner that
// is free takes no program of who has one planned already: a principal, or, while one alone is here, a session. So a
// small program starts at once beside another client's large ones. Planners beyond the first start when needed.
// A principal that has used its seconds of planning is refused, with what waits.
//
// Thread-safe. Its destructor stops it.
class Planners {
 public:
  using Plan = std::shared_ptr<const Program>;
  using Done = std::function<void(Result<Plan>)>;
  using Progress = std::function<void(const ::hostir::v1::PlanProgress&)>;
  struct Wanted {
    std::string text;  // Canonical.
    ::hostir::v1::ProgramSource source;
    Plan of = {};  // Whose plan for `sizes` it is; null: a program's first.
    Sizes sizes = {};
    int64_t request = 0;  // The first that asked, for the log.
  };
  struct Waiter {
    Done done;
    Owner owner;
    Progress progress;  // May be null.
  };
  // All must not block; they are called until the destructor returns.
  struct Hooks {
    // The plan, if somebody has it. Called under the lock.
    std::function<Plan(const Wanted&)> find;
    // From then on `find` finds it. `owner`: who asked first.
    std::function<Result<Plan>(const Wanted&, const Owner& owner, ::hostir::v1::Plan)> keep;
    // Whether more than one is here. Called under the lock.
    std::function<bool()> several_principals;
  };

  Planners(PlannerOptions options, const Limits& limits, std::shared_ptr<Metrics> metrics, const base::Clock& clock,
           Hooks hooks);
  ~Planners();

  // Plans what is wanted, once for all who want it before it is there. Errors (of `done`): as of ProgramCache::Get.
  void Ask(Wanted wanted, Waiter waiter);
  // The session has ended: what it alone waits for is not planned, unless that has begun. It hears `cause`.
  void Cancel(const Owner& owner, const Status& cause);
  // Answers what is being planned and what waits with `cause`; nothing is planned later. Not from two threads at once.
  void Stop(const Status& cause);

  int64_t num_queued() const;  // Those that are being planned count.
  // The processes' numbers, the first planner's first; 0: it is being started.
  std::vector<int64_t> pids() const;

 private:
  struct Request {
    Wanted wanted;
    Owner owner = {};  // Whose turn it takes: the first of those who wait.
    std::vector<Waiter> waiting = {};
    Charge bytes = {};
    bool begun = false;
    ::hostir::v1::PlanProgress progress = {};  // What was told last.
  };
  using Asked = std::shared_ptr<Request>;
  // One planner and the thread that owns it.
  struct Lane {
    explicit Lane(const PlannerOptions& options) : planner(options) {}
    PlannerProcess planner;
    Wakeup changed;    // `asked`, or stopping_.
    Asked asked = {};  // What it plans; guarded by mutex_.
    std::thread thread = {};
  };
  void Loop(Lane& lane);
  Result<Plan> Make(Lane& lane, const Request& request);
  void Finish(Lane& lane, const Asked& asked, const Result<Plan>& made, base::Nanos took);
  // A planner ended over `request`, or beside it.
  void CountDeath(const Request& request, const PlannerProcess::Outcome& outcome);
  void Tell(Request& request, const ::hostir::v1::PlanProgress& progress);
  // Tells those whose place in the queue is another than they heard last.
  void TellQueued();

  // REQUIRES, of all below: the lock is held.
  // OK, or why `wanted` does not go to the queue.
  Status Admit(const Wanted& wanted, const Owner& owner, Charge& bytes);
  // Takes those who wait that `drops` says; what nobody waits for then is asked no more, unless it has begun, and what
  // its owner waits for no more is another's.
  std::vector<Waiter> Drop(const std::function<bool(const Request&, const Waiter&)>& drops);
  // Gives those who wait to planners that are free.
  void Dispatch();
  bool MayBegin(const std::string& principal, const std::string& session, bool several) const;
  int64_t num_busy() const;
  void AddLane();

  const PlannerOptions options_;
  const Limits limits_;
  const std::shared_ptr<Metrics> metrics_;
  const base::Clock& clock_;
  const Hooks hooks_;
  Budget queued_bytes_;

  mutable std::mutex mutex_;  // Guards all below. Before that of who is behind the hooks.
  std::list<Asked> asked_;    // All that is not over, in the order it was asked for.
  FairQueue<Asked> waiting_;  // Of these, what has not begun.
  PlannerDeaths deaths_;
  PlanSeconds seconds_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Lane>> lanes_;  // At least one; none goes before the destructor.
};

}  // namespace hir::service
