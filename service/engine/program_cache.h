// ProgramCache: plans by program; those that are missing it has made (planners.h).
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
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/engine/fair_queue.h"
#include "service/engine/limits.h"
#include "service/engine/planners.h"
#include "service/engine/program.h"
#include "service/engine/program_texts.h"
#include "service/metrics/metrics.h"
#include "service/supervise/planner_process.h"

namespace hir::service {

// The one who asks for a plan.
struct PlanAsker {
  Owner owner = {};     // Principals take turns, and their sessions; the plans of one keep their order.
  int64_t request = 0;  // The number of the request that asks, for the log.
  // Called between the request and its `done`, on a planning thread, on another that asks, or on this one, while a
  // plan is made or waits for others; must not block. May be null.
  std::function<void(const ::hostir::v1::PlanProgress&)> progress = {};
};

// Thread-safe. Its destructor stops it.
class ProgramCache {
 public:
  // `several_principals`: whether more than one is here, which Planners asks; null: one.
  ProgramCache(PlannerOptions planner, const Limits& limits,
               std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>(),
               std::function<bool()> several_principals = {}, const base::Clock& clock = base::Clock::Steady());
  ~ProgramCache();

  using Done = Planners::Done;
  // The program whose canonical text is `text`, planned from `source` if need be. `done` is called once, here or on
  // a planning thread; it must not block.
  // Errors: what is wrong with the program; kUnavailable, kDeadlineExceeded of the planner; kFailedPrecondition for a
  //         program that it died of planner_deaths_max times; kResourceExhausted naming queued_plans_max.
  using Progress = Planners::Progress;
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

  // Its canonical text. Errors: as above.
  Result<std::string> TextOf(std::string_view id);

  // As of Planners.
  void Cancel(const Owner& owner, const Status& cause) { planners_.Cancel(owner, cause); }
  void Stop(const Status& cause) { planners_.Stop(cause); }

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
  int64_t text_bytes() const;  // Of programs as they were sent.
  int64_t num_queued() const { return planners_.num_queued(); }
  int64_t num_planned() const { return num_planned_; }  // Plans made since the start.
  std::vector<int64_t> planner_pids() const { return planners_.pids(); }

 private:
  using Wanted = Planners::Wanted;
  struct Entry {
    std::shared_ptr<const Program> program;
    std::string text;
    std::string principal;                                 // Who asked for it first.
    std::list<std::shared_ptr<const Program>> sized = {};  // Its plans for sizes, the latest used first.
    int64_t requests = 0;
  };
  // Numbers of programs whose last holder let go of them, which may be after the cache ended.
  struct Gone {
    std::mutex mutex;
    std::vector<int64_t> numbers;  // Guarded by mutex.
  };
  // `program`, which tells `gone` when it goes.
  static std::shared_ptr<const Program> Watched(std::shared_ptr<const Program> program, std::shared_ptr<Gone> gone);
  // What is asked of the planners' callbacks.
  std::shared_ptr<const Program> FindWanted(const Wanted& wanted);
  Result<std::shared_ptr<const Program>> KeepMade(const Wanted& wanted, const Owner& owner, ::hostir::v1::Plan plan);
  void Keep(const Wanted& wanted, const std::string& principal, std::shared_ptr<const Program> program);
  void KeepFor(const Wanted& wanted, const std::shared_ptr<const Program>& sized);
  // REQUIRES, of the three: the lock is held.
  // Drops what `principal` used least lately, of those that it asked for first.
  void Evict(const std::string& principal);
  std::shared_ptr<const Program> FindLocked(const std::shared_ptr<const Program>& program, const Sizes& sizes);
  void Touch(Entry& entry);

  const Limits limits_;
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<Gone> gone_ = std::make_shared<Gone>();

  std::atomic<int64_t> num_planned_ = 0;

  mutable std::mutex mutex_;                          // Guards all below, but for planners_.
  std::list<std::shared_ptr<const Program>> recent_;  // The latest used first.
  std::unordered_map<std::string, std::shared_ptr<const Program>> by_text_;
  ProgramTexts by_sent_;
  std::map<std::string, Entry, std::less<>> by_id_;
  std::map<std::string, int64_t> num_of_;  // Entries, by principal.
  int64_t next_number_ = 1;

  Planners planners_;  // Last: its threads use all of the above.
};

}  // namespace hir::service
