#include "csrc/base/work_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"

namespace hir::base {

WorkPool::WorkPool(Options options) : options_(options) {
  HIR_CHECK(options.num_threads >= 0);
  for (int i = 0; i < options.num_threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkPool::~WorkPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
}

bool WorkPool::Post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= options_.queue_depth_max) return false;
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
  return true;
}

size_t WorkPool::num_queued() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}

void WorkPool::Loop() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

namespace {

// One ParallelFor call. Shared with the pool's threads, which may look at it after the call has returned.
struct Split {
  const std::function<void(int64_t, int64_t)>* body;
  int64_t count;
  int64_t piece;
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> done = 0;

  void Run() {
    for (;;) {
      const int64_t begin = next.fetch_add(piece);
      if (begin >= count) return;
      const int64_t end = std::min(begin + piece, count);
      (*body)(begin, end);
      if (done.fetch_add(end - begin) + end - begin == count) done.notify_all();
    }
  }
};

}  // namespace

void WorkPool::ParallelFor(int64_t count, int64_t grain,
                           const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  // Some pieces more than threads, so that one slow thread does not hold up the end.
  const int64_t piece = std::max({grain, CeilDiv(count, 4 * (num_threads() + 1)), int64_t{1}});
  if (piece >= count || num_threads() == 0) return body(0, count);
  auto split = std::make_shared<Split>();
  split->body = &body;
  split->count = count;
  split->piece = piece;
  // A full queue only means fewer threads: the caller does what nobody else takes.
  for (int i = 0; i < num_threads(); ++i) {
    if (!Post([split] { split->Run(); })) break;
  }
  split->Run();
  for (int64_t done = split->done; done != count; done = split->done) split->done.wait(done);
}

}  // namespace hir::base
