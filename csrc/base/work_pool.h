// A fixed set of threads that run posted work, with a bounded queue. Thread-safe.
//
// Work must not wait for other work of the same pool. The destructor runs what is queued, then joins.
#pragma once

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

  // Runs body(begin, end) over [0, count) in pieces of at least `grain`, on the caller's thread and on idle
  // threads of the pool; returns when all is done.
  void ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

  // Posted, and not begun.
  size_t num_queued() const;

  int num_threads() const { return static_cast<int>(threads_.size()); }

 private:
  void Loop();

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;  // Guarded by mutex_: queue_, stopping_.
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace hir::base
