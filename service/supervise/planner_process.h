// PlannerProcess: the process that plans programs, started again whenever it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/channel.h"
#include "service/os/process.h"
#include "service/os/wakeup.h"
#include "service/supervise/leaving.h"

namespace hir::service {

struct PlannerOptions {
  std::string worker_path;
  std::vector<std::string> worker_args = {};
  std::string device = "cpu:0";  // Its kind is what code is made for; the planner opens none.
  int64_t num_devices = 1;
  ::hostir::v1::Target target = {};
  int64_t resharding_bytes_max = 0;  // The limit.
  int64_t loop_streams = 4;          // The limit.
  int64_t bytes_max = 0;             // The limit planner_bytes_max; 0: none.
  // Asked for each plan, on the thread that has it made. Null: there is one node.
  std::function<::hostir::v1::Links()> links = {};
};

// Threads: one owns it (and lives as long); pid() and Interrupt() from any.
class PlannerProcess {
 public:
  explicit PlannerProcess(PlannerOptions options) : options_(std::move(options)) {}

  // Makes sure that there is a process.
  Status Start();
  using Ended = std::function<void(int64_t pid, std::string_view how)>;
  // Blocks until `wake_fd` is readable. A process that ends meanwhile is replaced, once a second at most; `ended` hears
  // of each first.
  void Watch(int wake_fd, const Ended& ended);

  struct Outcome {
    Status status = {};
    ::hostir::v1::Plan plan = {};  // When status is OK.
    bool ended = false;            // The planner died, or was ended because it took too long,
    bool of_it = false;            // over this program, and nobody had killed it.
    bool of_memory = false;        // It wanted more than bytes_max.
    std::string how = {};          // "killed by signal 11"
  };
  struct Task {
    const ::hostir::v1::ProgramSource& program;
    const std::map<std::string, int64_t, std::less<>>& sizes;  // Of its symbols, where known.
    std::string_view digest;                                   // What errors call it.
    base::Nanos timeout;
  };
  struct Listener {
    std::function<void()> sent;   // The planner has the program,
    std::function<void()> began;  // and has begun with it.
    std::function<void(const ::hostir::v1::PlanProgress&)> progress;
    // The planner died, and the next one gets it: it had not begun with it ("not begun"), or its memory, which ran out,
    // was not this program's alone ("out of memory").
    std::function<void(std::string_view why, std::string_view how)> again;
  };
  // Errors: what the planner says of the program; kUnavailable, kDeadlineExceeded, kResourceExhausted naming
  // planner_bytes_max with `ended` set; or without, when no process could be started.
  Outcome MakePlan(const Task& task, const Listener& listener);

  // Ends the plan that is being made, and every later one, with `cause`. From any thread, once.
  void Interrupt(const Status& cause);

  int64_t pid() const;

 private:
  // One attempt; `begun` when the planner has said that it plans the program.
  Outcome Ask(const Task& task, const Listener& listener, bool& begun);
  Outcome Await(const Task& task, const Listener& listener, base::Nanos deadline, bool& begun);
  Outcome Died(const Task& task, std::string_view how);
  Status interrupt() const;
  void Stop();

  const PlannerOptions options_;
  Leaving leaving_;  // Those before.
  Process process_;
  std::unique_ptr<Channel> channel_;  // Null when there is no process.
  base::Nanos started_ = {};
  bool fresh_ = true;  // It has planned nothing yet.
  int64_t seq_ = 0;
  Wakeup interrupted_;
  mutable std::mutex mutex_;
  int64_t pid_ = 0;        // Guarded by mutex_: the one below too.
  Status interrupt_ = {};  // Not OK once interrupted.
};

}  // namespace hir::service
