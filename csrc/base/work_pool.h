// A fixed set of threads that run posted work, with a bounded queue. Thread-safe.
//
// Work must not wait for other work of the same pool. The destructor runs what is queued, then joins.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hir::base {

class WorkPool {
 public:
  struct Options {
    int num_threads = 1;
    size_t queue_depth_max = 1024;
  };
  explicit WorkPool(Options options);
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Queues `work`; false, and nothing queued, when the queue is full.
  [[nodiscard]] bool Post(std::function<void()> work);

  // For a thread that would only wait: runs, on it, the first work that is queued, whosever it is. False when there is
  // none, or as many run as the pool has threads: with one that lends itself there are never more.
  bool LendThread();

  // Runs body(begin, end) over [0, count) in pieces of at least `grain`, on the caller's thread and on idle
  // threads of the pool; returns when all is done.
  void ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

  // Posted, and not begun.
  size_t num_queued() const { return num_queued_; }

  int num_threads() const { return options_.num_threads; }

 private:
  void Loop();
  // mutex_ is held, as in the next.
  bool HasTurn() const { return !queue_.empty() && num_running_ < num_threads(); }
  std::function<void()> Take();
  // Unless as many as are wanted are on their way.
  void WakeOne(std::unique_lock<std::mutex> lock);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;  // Guarded by mutex_, as are those up to threads_.
  std::deque<std::function<void()>> queue_;
  int num_running_ = 0;     // Pieces of work.
  size_t num_waiting_ = 0;  // Threads of the pool,
  size_t num_waking_ = 0;   // and those of them that have been notified.
  bool stopping_ = false;
  std::atomic<size_t> num_queued_ = 0;  // Of queue_; written under mutex_.
  std::vector<std::jthread> threads_;
};

}  // namespace hir::base
