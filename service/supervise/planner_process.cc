#include "service/supervise/planner_process.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "service/os/memory_limit.h"
#include "service/supervise/child_error.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

// A process that is killed has its socket closed before it ends: on a machine with much to do long before.
constexpr base::Nanos kPlannerEndAfterSocket = std::chrono::seconds(1);
constexpr base::Nanos kPlannerSendTimeout = std::chrono::seconds(2);
constexpr std::chrono::seconds kRestartPause(1);

// Planners that may die of something else while they have one program.
constexpr int kAttempts = 3;

// Signals that others send; what a process does to itself comes as others.
bool IsFromOutside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

using base::Now;

}  // namespace

int64_t PlannerProcess::pid() const {
  const std::scoped_lock lock(mutex_);
  return pid_;
}

void PlannerProcess::Interrupt(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    interrupt_ = cause;
  }
  interrupted_.Signal();
}

Status PlannerProcess::interrupt() const {
  const std::scoped_lock lock(mutex_);
  return interrupt_;
}

void PlannerProcess::Stop() {
  channel_.reset();
  // A request for the plan does not wait for the end of a process that is frozen, or held by a debugger.
  leaving_.Add("planner", std::exchange(process_, Process()));
  (void)leaving_.Wait({});
  const std::scoped_lock lock(mutex_);
  pid_ = 0;
}

Status PlannerProcess::Start() {
  if (channel_ != nullptr && !process_.Ended(milliseconds(0)).has_value()) return {};
  Stop();
  HIR_ASSIGN(auto ends, Channel::Pair());
  std::vector<std::string> args = {"--role=planner", base::Cat("--device=", options_.device),
                                   base::Cat("--parent-pid=", getpid()),
                                   base::Cat("--resharding-bytes-max=", options_.resharding_bytes_max),
                                   base::Cat("--loop-streams=", options_.loop_streams)};
  if (options_.bytes_max > 0) args.push_back(base::Cat("--bytes-max=", options_.bytes_max));
  args.insert(args.end(), options_.worker_args.begin(), options_.worker_args.end());
  HIR_ASSIGN(process_, Process::Spawn(options_.worker_path, args, ends.second));
  channel_ = std::make_unique<Channel>(std::move(ends.first));
  started_ = Now();
  fresh_ = true;
  const std::scoped_lock lock(mutex_);
  pid_ = process_.pid();
  return {};
}

void PlannerProcess::Watch(int wake_fd, const Ended& ended) {
  for (;;) {
    pollfd fds[2] = {{wake_fd, POLLIN, 0}, {process_.fd(), POLLIN, 0}};
    const bool young = Now() - started_ < kRestartPause;
    // One that has just ended young is left alone for a while: the next would end too.
    const bool pause = young && process_.Ended(milliseconds(0)).has_value();
    const int timeout_ms = static_cast<int>(milliseconds(kRestartPause).count());
    const bool all_left = leaving_.Wait({});
    if (poll(fds, pause ? 1 : 2, pause || !all_left ? timeout_ms : -1) < 0) continue;
    if (fds[0].revents != 0) return;
    if (const auto how = process_.Ended(milliseconds(0))) ended(pid(), *how);
    if (!Start().ok() && poll(fds, 1, timeout_ms) > 0) return;
  }
}

PlannerProcess::Outcome PlannerProcess::Died(const Task& task, std::string_view fallback) {
  Outcome outcome;
  outcome.how = process_.Ended(kPlannerEndAfterSocket).value_or(std::string(fallback));
  const bool killed = IsFromOutside(process_.signal());
  outcome.of_memory = process_.exit_code() == kExitOutOfMemory;
  Stop();
  outcome.ended = true;
  outcome.of_it = !killed;
  const std::string_view why = killed ? "; somebody ended it, or memory ran out, which is not held against the program"
                                      : "; this is a fault of hostir: please report it with the program's text";
  outcome.status = Unavailable(base::Cat("the planner died (", outcome.how, ") while it planned program ", task.digest,
                                         why, "; the planner is restarted"));
  if (outcome.of_memory) {
    outcome.status = ResourceExhausted(base::Cat(
        "planner_bytes_max = ", options_.bytes_max, ": the planner found no more memory for program ", task.digest,
        "; make the program smaller, or start the daemon with a higher limit; the planner is restarted"));
  }
  (void)Start();  // The next call tries again, and reports.
  return outcome;
}

PlannerProcess::Outcome PlannerProcess::MakePlan(const Task& task, const Listener& listener) {
  for (int attempt = 1;; ++attempt) {
    bool begun = false;
    const bool fresh = fresh_ || channel_ == nullptr;
    Outcome outcome = Ask(task, listener, begun);
    outcome.of_it = outcome.of_it && begun;
    const bool died = outcome.ended && outcome.status.code() == Code::kUnavailable;
    const bool shared_memory = outcome.of_memory && !fresh;  // Earlier programs may have left little.
    if (!((died && !begun) || shared_memory) || attempt == kAttempts) return outcome;
    listener.again(shared_memory ? "out of memory" : "not begun", outcome.how);
  }
}

PlannerProcess::Outcome PlannerProcess::Ask(const Task& task, const Listener& listener, bool& begun) {
  Outcome outcome;
  outcome.status = Start();
  if (!outcome.status.ok()) return outcome;
  pb::ToWorker message;
  message.set_seq(++seq_);
  pb::MakePlan& make_plan = *message.mutable_make_plan();
  *make_plan.mutable_program() = task.program;
  make_plan.set_num_devices(options_.num_devices);
  *make_plan.mutable_target() = options_.target;
  if (options_.links) *make_plan.mutable_links() = options_.links();
  for (const auto& [symbol, value] : task.sizes) (*make_plan.mutable_sizes())[symbol] = value;
  const base::Nanos deadline = Now() + task.timeout;
  if (!channel_->Send(message.SerializeAsString(), {}, kPlannerSendTimeout).ok()) return Died(task, "it does not read");
  listener.sent();
  return Await(task, listener, deadline, begun);
}

PlannerProcess::Outcome PlannerProcess::Await(const Task& task, const Listener& listener, base::Nanos deadline,
                                              bool& begun) {
  Outcome outcome;
  for (;;) {
    pollfd fds[2] = {{channel_->fd(), POLLIN, 0}, {interrupted_.fd(), POLLIN, 0}};
    const int64_t ms = std::chrono::ceil<milliseconds>(deadline - Now()).count();
    if (ms <= 0 || poll(fds, 2, static_cast<int>(std::min<int64_t>(ms, 1 << 30))) == 0) {
      process_.Kill();
      outcome = Died(task, "too slow");
      outcome.of_it = true;
      outcome.status = {Code::kDeadlineExceeded,
                        base::Cat("planning took longer than plan_timeout_ms = ",
                                  std::chrono::duration_cast<milliseconds>(task.timeout).count(),
                                  "; make the program smaller, or start the daemon with a higher limit")};
      return outcome;
    }
    if (fds[1].revents != 0) {
      outcome.status = interrupt();
      return outcome;
    }
    auto received = channel_->Receive(/*block=*/false);
    if (!received.ok()) return Died(task, "its socket ended");
    if (!received->has_value()) continue;
    pb::FromWorker from;
    const bool parsed = from.ParseFromString((*received)->bytes);
    if (!parsed || !(from.has_plan_made() || from.has_plan_progress())) return Died(task, "it sent no plan");
    if (from.seq() != seq_) continue;
    if (!begun) listener.began();
    begun = true;
    fresh_ = false;
    if (from.has_plan_progress()) {
      listener.progress(from.plan_progress());
      continue;
    }
    outcome.status = FromError(from.plan_made().error());
    if (outcome.status.ok()) outcome.plan = std::move(*from.mutable_plan_made()->mutable_plan());
    return outcome;
  }
}

}  // namespace hir::service
