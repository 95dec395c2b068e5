#include "multidevice/comm/local/scheduler.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace hir::comm {

Scheduler::~Scheduler() { HIR_CHECK(turns_.empty()); }

base::Nanos Scheduler::Now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

int64_t Scheduler::Draw(int64_t n) {
  std::lock_guard lock(mutex_);
  return random_.Below(n);
}

void Scheduler::Ready(std::string name, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  ready_.push_back({.name = std::move(name), .work = std::move(work)});
}

void Scheduler::At(base::Nanos time, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  timers_.emplace(time, std::move(work));
}

void Scheduler::Trace(std::string line) {
  std::lock_guard lock(mutex_);
  trace_.push_back(std::move(line));
}

std::vector<std::string> Scheduler::trace() const {
  std::lock_guard lock(mutex_);
  return trace_;
}

bool Scheduler::Step() {
  Item item;
  {
    std::lock_guard lock(mutex_);
    if (ready_.empty()) return false;
    const auto at = static_cast<size_t>(random_.Below(static_cast<int64_t>(ready_.size())));
    item = std::move(ready_[at]);
    ready_.erase(ready_.begin() + static_cast<int64_t>(at));
    if (!item.name.empty()) trace_.push_back(std::move(item.name));
  }
  item.work();
  WakeTurns();
  return true;
}

bool Scheduler::StepOrTimer() {
  if (Step()) return true;
  std::function<void()> work;
  {
    std::lock_guard lock(mutex_);
    if (timers_.empty()) return false;
    const auto next = timers_.begin();
    now_ = std::max(now_, next->first);
    work = std::move(next->second);
    timers_.erase(next);
  }
  work();
  WakeTurns();
  return true;
}

void Scheduler::GoOn(Turn& turn) {
  turn.go.release();
  back_.acquire();
}

void Scheduler::WakeTurns() {
  for (size_t i = 0; i < turns_.size(); ++i) {
    Turn& turn = *turns_[i];
    if (turn.done == nullptr) continue;
    {
      std::lock_guard lock(*turn.mutex);
      if (!(*turn.done)() && Now() < turn.deadline) continue;
    }
    turn.done = nullptr;
    Ready("thread " + std::to_string(i) + " goes on", [this, &turn] { GoOn(turn); });
  }
}

Scheduler::Turn* Scheduler::CurrentTurn() {
  for (const auto& turn : turns_) {
    if (turn->thread.get_id() == std::this_thread::get_id()) return turn.get();
  }
  return nullptr;
}

void Scheduler::Run(const std::vector<std::function<void()>>& bodies) {
  HIR_CHECK(turns_.empty());
  for (size_t i = 0; i < bodies.size(); ++i) turns_.push_back(std::make_unique<Turn>());
  for (size_t i = 0; i < bodies.size(); ++i) {
    Turn& turn = *turns_[i];
    turn.thread = std::jthread([this, &turn, &body = bodies[i]] {
      turn.go.acquire();
      body();
      turn.finished = true;
      back_.release();
    });
    Ready("thread " + std::to_string(i) + " starts", [this, &turn] { GoOn(turn); });
  }
  const auto running = [this] {
    return std::any_of(turns_.begin(), turns_.end(), [](const auto& turn) { return !turn->finished; });
  };
  // A blocked thread has a deadline, and its deadline a timer: something always happens.
  while (running()) HIR_CHECK(StepOrTimer());
  RunUntilIdle();
  turns_.clear();
}

void Scheduler::RunUntilIdle() {
  while (Step()) {
  }
}

bool Scheduler::Block(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, base::Nanos timeout) {
  if (done()) return true;
  const base::Nanos deadline = Now() + timeout;
  Turn* const turn = CurrentTurn();
  lock.unlock();
  if (turn != nullptr) {
    turn->deadline = deadline;
    turn->mutex = lock.mutex();
    turn->done = &done;
    At(deadline, [] {});  // WakeTurns looks at the deadline.
    back_.release();
    turn->go.acquire();
    lock.lock();
    return done();
  }
  for (;;) {
    lock.lock();
    if (done()) return true;
    if (Now() >= deadline) return false;
    lock.unlock();
    if (Step()) continue;
    // Up to the next timer, but not beyond the deadline.
    bool timer = false;
    {
      std::lock_guard guard(mutex_);
      timer = !timers_.empty() && timers_.begin()->first < deadline;
      if (!timer) now_ = std::max(now_, deadline);
    }
    if (timer) StepOrTimer();
  }
}

}  // namespace hir::comm
