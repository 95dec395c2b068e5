// ProgramCache: plans by program, and the thread that has the planner make those that are missing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/engine/fair_queue.h"
#include "service/engine/limits.h"
#include "service/engine/program.h"
#include "service/engine/program_texts.h"
#include "service/metrics/metrics.h"
#include "service/os/wakeup.h"
#include "service/store/budget.h"
#include "service/supervise/planner_process.h"

namespace hir::service {

// The one who asks for a plan.
struct PlanAsker {
  Owner owner = {};     // Sessions take turns; the plans of one keep their order.
  int64_t request = 0;  // The number of the request that asks, for the log.
  // Called between the request and its `done`, on the planning thread, on another that asks, or on this one, while a
  // plan is made or waits for others; must not block. May be null.
  std::function<void(const ::hostir::v1::PlanProgress&)> progress = {};
};

// Thread-safe. Its destructor stops it.
class ProgramCache {
 public:
  ProgramCache(PlannerOptions planner, const Limits& limits,
               std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>());
  ~ProgramCache();

  using Done = std::function<void(Result<std::shared_ptr<const Program>>)>;
  // The program whose canonical text is `text`, planned from `source` if need be. `done` is called once, here or on
  // the planning thread; it must not block.
  // Errors: what is wrong with the program; kUnavailable, kDeadlineExceeded of the planner; kFailedPrecondition for a
  //         program that it died of planner_deaths_max times; kResourceExhausted naming queued_plans_max.
  using Progress = std::function<void(const ::hostir::v1::PlanProgress&)>;
  void Get(const std::string& text, const ::hostir::v1::ProgramSource& source, Done done, PlanAsker asker = {});
  // The program that Get found or made for a source of the very bytes `sent` (ProgramBytes); null when it is none or
  // was evicted since. Costs no parsing.
  std::shared_ptr<const Program> FindSent(std::string_view sent);
  // The plan of `program` for `sizes`, which it has checked: it, another that it has, or one that is made for them; of
  // those a program has program_plans_max, and the one not used for longest goes. `done` as above.
  // Errors: as above; kInvalidArgument naming the guard when no plan serves them.
  void GetFor(const std::shared_ptr<const Program>& program, const Sizes& sizes, Done done, PlanAsker asker = {});
  // The same when it is there; else null.
  std::shared_ptr<const Program> FindFor(const std::shared_ptr<const Program>& program, const Sizes& sizes);
  // Errors: kNotFound "no program ...": unknown here, or evicted.
  Result<std::shared_ptr<const Program>> Find(std::string_view id);

  // The session has ended: what it alone waits for is not planned, unless that has begun. It hears `cause`.
  void Cancel(const Owner& owner, const Status& cause);
  // Answers what is being planned and what waits with `cause`; nothing is planned later. Not from two threads at once.
  void Stop(const Status& cause);

  // Numbers of programs that were evicted and that no run holds any more, for the workers to drop. One that waits for
  // its turn would be loaded again, so it keeps its program from here.
  std::vector<int64_t> TakeGone();
  struct Cached {
    int64_t number = 0;                      // Of the program, whatever its plan.
    int64_t requests = 0;                    // Since it was made.
    std::shared_ptr<const Program> program;  // The plan for sizes that was used last, or the only one.
  };
  std::vector<Cached> Latest() const;  // The latest used first.
  int64_t size() const;
  int64_t text_bytes() const;                           // Of programs as they were sent.
  int64_t num_queued() const;                           // The one that is being planned counts.
  int64_t num_planned() const { return num_planned_; }  // Plans made since the start.
  int64_t planner_pid() const { return planner_.pid(); }

 private:
  struct Waiter {
    Done done;
    Owner owner;
    Progress progress;  // May be null.
  };
  struct Request {
    std::string text;
    ::hostir::v1::ProgramSource source;
    std::shared_ptr<const Program> of = {};  // Whose plan for `sizes` it is; null: a program's first.
    Sizes sizes = {};
    std::vector<Waiter> waiting = {};
    int64_t request = 0;                       // The first that asked.
    Charge bytes = {};                         // Of the program.
    int64_t turn = 0;                          // Of queue_, which is ordered by it: its session's latest and its bytes.
    ::hostir::v1::PlanProgress progress = {};  // What was told last.
  };
  struct Entry {
    std::shared_ptr<const Program> program;
    std::string text;
    std::list<std::shared_ptr<const Program>> sized = {};  // Its plans for sizes, the latest used first.
    int64_t requests = 0;
  };
  // Adds to what is asked already, or to the queue.
  void Queue(Request request, Waiter waiter, std::unique_lock<std::mutex> lock);
  // Where `request` goes, before others: its turn is set. Self-clocked fair queueing. REQUIRES: the lock is held.
  std::list<Request>::iterator PlaceOf(Request& request, const Owner& owner);
  // Tells whoever waits for the `index`th of queue_ how far it is.
  void Tell(int64_t index, const ::hostir::v1::PlanProgress& progress);
  void TellQueued();
  void Loop();
  // Numbers of programs whose last holder let go of them, which may be after the cache ended.
  struct Gone {
    std::mutex mutex;
    std::vector<int64_t> numbers;  // Guarded by mutex.
  };
  // `program`, which tells `gone` when it goes.
  static std::shared_ptr<const Program> Watched(std::shared_ptr<const Program> program, std::shared_ptr<Gone> gone);
  // The planner ended over `request`, or beside it.
  void CountDeath(const Request& request, const PlannerProcess::Outcome& outcome);
  // Plans the front of queue_ and answers it.
  Result<std::shared_ptr<const Program>> Plan(const Request& request);
  void Keep(const Request& request, std::shared_ptr<const Program> program);
  void KeepFor(const Request& request, const std::shared_ptr<const Program>& sized);
  std::shared_ptr<const Program> FindLocked(const std::shared_ptr<const Program>& program, const Sizes& sizes);
  void Touch(Entry& entry);

  const Limits limits_;
  const std::shared_ptr<Metrics> metrics_;
  Budget queued_bytes_;
  const std::shared_ptr<Gone> gone_ = std::make_shared<Gone>();
  PlannerProcess planner_;  // Used by the thread alone, but for pid().

  std::atomic<int64_t> num_planned_ = 0;
  Wakeup changed_;  // Of the thread: queue_ or stopping_.

  mutable std::mutex mutex_;                          // Guards all below.
  std::list<Request> queue_;                          // The front is being planned.
  std::map<std::string, int64_t> turns_;              // The latest of sessions that are ahead of latest_turn_.
  int64_t latest_turn_ = 0;                           // That was planned.
  std::list<std::shared_ptr<const Program>> recent_;  // The latest used first.
  std::unordered_map<std::string, std::shared_ptr<const Program>> by_text_;
  ProgramTexts by_sent_;
  std::map<std::string, Entry, std::less<>> by_id_;
  struct Deaths {
    int64_t count = 0;
    base::Nanos latest = {};
  };
  std::unordered_map<std::string, Deaths> deaths_;  // Of the planner, by program text.
  int64_t next_number_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hir::service
