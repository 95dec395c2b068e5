// StreamCore: the queue of one host stream and the state of whoever works it off.
//
// At most one thread owns the core at a time: the one inside Run or GoOn, or nobody while an AsyncOp or a
// wait is pending, or the threads inside a split launch, of which the last to finish goes on.
// `active_` says that there is an owner. Cores belong to the device and outlive it all, so an event
// can point at one for ever.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/host/executor.h"
#include "csrc/device/host/task_queue.h"
#include "csrc/device/stream.h"

namespace hir::device {

class StreamCore final : public Completion::Target {
 public:
  // helpers: how many more helper tasks may be queued in the executor, shared by the device's
  // streams.
  StreamCore(std::string name, int64_t id, int64_t queued_ops_max, Executor& executor, std::atomic<int>& helpers);

  // The thread that queues: a task to fill in and Submit; null when the queue is full, and the
  // stream has failed.
  Task* NewTask();
  void Submit();

  // Any thread. A position counts operations: "done() >= p" is "the first p operations are done".
  int64_t queued() const { return queue_.pushed(); }
  int64_t done() const { return queue_.popped(); }
  bool drained() const { return done() == queued(); }
  // No thread is inside or on its way in. Once drained, it stays so.
  bool quiet() const { return inside_.load() == 0; }

  // Blocks until `position`; then the failure of the operations before it.
  Status Synchronize(int64_t position, base::Nanos timeout);
  // The failure of an operation before `position`, or OK.
  Status FailureBefore(int64_t position) const;
  bool failed() const { return failed_at_.load() != kNever; }
  void ClearError();

  const std::string& name() const { return name_; }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  struct Waiter {
    int64_t position;
    StreamCore* stream;  // Null: a thread in Synchronize.
  };

  void Complete(Status status) override;

  // The owner's: light work (waits, starts of communications) at once, and Run, later, for anything
  // else. So a communication need not wait for a thread of the pool to wake.
  void GoOn();
  void Wake();            // What this stream waited for is done.
  void Post();            // Run, later. REQUIRES: a task.
  void Run();             // Works until the queue is empty, something is pending or a loan is over.
  bool Step(Task& task);  // False: the task is pending, and the core is no longer ours.
  bool Launch(Task& task);
  // True: this thread did the last piece. Between two it may leave the rest to the launch's owner.
  bool RunPieces(uint64_t epoch, bool (*leaves)());
  bool HasPieces(uint64_t epoch) const { return HasPieces(epoch, claim_.load()); }
  static bool HasPieces(uint64_t epoch, uint64_t claim) { return claim >> 32 == epoch && (claim & 0xffffffff) > 0; }
  void PostHelpers(uint64_t epoch, int64_t count);
  void Finish(const Status& status);  // The front task is over.
  void Fail(const Status& status, int64_t index);

  // Returns when `position` is done, or it looks as if that took longer; how long it looked.
  base::Nanos LookUntil(int64_t position, base::Nanos timeout) const;

  // False when `position` is done already; else `stream`, null for a thread, is woken when it is.
  bool AddWaiter(int64_t position, StreamCore& stream);
  void WakeWaiters();
  void RemoveThreadWaiter(int64_t position);  // REQUIRES: mutex_ is held, as in the next.
  void UpdateWakeAt();

  const std::string name_;
  const int64_t id_;
  const int64_t queued_ops_max_;
  Executor& executor_;
  std::atomic<int>& helpers_;

  TaskQueue queue_;
  std::atomic<bool> active_ = false;
  std::atomic<int> inside_ = 0;  // Posted or running calls that touch this object.

  // The owner's: an AsyncOp that has been started. Of Start's return and Complete, the second goes
  // on.
  std::atomic<bool> async_met_ = false;
  Status async_status_;

  // The launch in progress. claim_ is (epoch << 32 | pieces not yet taken): a helper that comes too
  // late sees another epoch, or nothing left, and touches nothing else.
  std::atomic<uint64_t> claim_ = 0;
  std::atomic<int64_t> unfinished_ = 0;
  HostFunction split_function_ = nullptr;
  const int64_t* split_args_ = nullptr;
  int64_t split_grid_ = 0;
  int64_t split_pieces_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;          // With mutex_: threads in Synchronize.
  std::vector<Waiter> waiters_;              // Guarded by mutex_.
  Status failure_;                           // Guarded by mutex_.
  std::atomic<int64_t> wake_at_ = kNever;    // The least position waited for; written under mutex_.
  std::atomic<int64_t> failed_at_ = kNever;  // Index of the first failed operation; written under mutex_.
};

}  // namespace hir::device
