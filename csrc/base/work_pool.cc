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
  std::unique_lock lock(mutex_);
  if (stopping_ || queue_.size() >= options_.queue_depth_max) return false;
  queue_.push_back(std::move(work));
  num_queued_ = queue_.size();
  WakeOne(std::move(lock));
  return true;
}

// To wake a thread takes 10 us and more of the one that does it.
void WorkPool::WakeOne(std::unique_lock<std::mutex> lock) {
  if (!HasTurn() || num_waking_ >= std::min(queue_.size(), num_waiting_)) return;
  ++num_waking_;
  lock.unlock();
  ready_.notify_one();
}

std::function<void()> WorkPool::Take() {
  std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  num_queued_ = queue_.size();
  ++num_running_;
  return work;
}

void WorkPool::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!HasTurn()) {
      if (stopping_ && queue_.empty()) return;
      ++num_waiting_;
      ready_.wait(lock);
      --num_waiting_;
      if (num_waking_ > 0) --num_waking_;
    }
    std::function<void()> work = Take();
    lock.unlock();
    work();
    work = nullptr;  // What it holds goes outside the lock.
    lock.lock();
    --num_running_;
  }
}

bool WorkPool::LendThread() {
  if (num_queued_ == 0) return false;
  std::unique_lock lock(mutex_);
  if (!HasTurn()) return false;
  std::function<void()> work = Take();
  lock.unlock();
  work();
  work = nullptr;
  lock.lock();
  --num_running_;
  WakeOne(std::move(lock));  // A thread of the pool may have left its turn to this one.
  return true;
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

void WorkPool::ParallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
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
