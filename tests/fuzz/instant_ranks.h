// Ranks that do nothing, at once, or fail once as they are told: what is behind an engine whose requests are fuzzed. On
// the steady clock, for as many threads as an engine has: simulated ranks have one.
#pragma once

#include <poll.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "service/os/wakeup.h"
#include "service/supervise/ranks.h"

namespace hir::fuzz {

class InstantRanks final : public service::Ranks {
 public:
  explicit InstantRanks(int64_t size) : size_(size) {}

  // The next call, or what is posted next, fails with it; the mesh dies of kUnavailable and kDeadlineExceeded.
  void FailNext(Status status) {
    const std::scoped_lock lock(mutex_);
    fault_ = std::move(status);
  }

  int64_t size() const override { return size_; }
  const base::Clock& clock() const override { return base::Clock::Steady(); }
  bool healthy() const override { return healthy_; }
  const Status& failure() const override { return failure_; }
  int64_t generation() const override { return generation_; }
  const std::vector<::hostir::v1::Measured>& measured() const override { return measured_; }
  base::BusyWait& busy_wait() override { return busy_wait_; }
  void Look() override {}
  void StopLooking() override {}
  void Pause() override {}
  void OnLate(Late) override {}
  void OnWait(Waiting) override {}
  void Nudge() override {}

  Status Start() override {
    ++generation_;
    posted_ = false;
    SetHealthy(true);
    return {};
  }
  Status Call(std::vector<std::vector<service::RankMessage>>, service::TimeLimit, std::string_view what,
              Waits) override {
    measured_.assign(static_cast<size_t>(size_), {});
    return Outcome(what);
  }
  bool Post(const ::hostir::v1::Execute& execute) override {
    if (execute.run() % 8 == 0) return false;  // Too long, once in a while.
    posted_ = true;
    answered_.Signal();
    return true;
  }
  Status Await(service::TimeLimit, std::string_view what, Waits) override {
    if (!healthy_) return failure_;
    answered_.Clear();
    posted_ = false;
    return Outcome(what);
  }
  bool TakePosted() override {
    const std::scoped_lock lock(mutex_);
    if (!posted_ || !fault_.ok()) return false;
    answered_.Clear();
    posted_ = false;
    return true;
  }
  bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) override {
    pollfd fds[2] = {{wake_fd, POLLIN, 0}, {answered_.fd(), POLLIN, 0}};
    const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
    lock.unlock();
    (void)poll(fds, 2, static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 20)));
    lock.lock();
    const std::scoped_lock fault(mutex_);
    if (posted_ && fault_.ok() && fds[1].revents != 0) {
      answered_.Clear();
      posted_ = false;
    }
    return fds[0].revents != 0;
  }
  void Interrupt(const Status& cause) override { FailNext(cause); }

  Snapshot snapshot() const override {
    const std::scoped_lock lock(mutex_);
    return snapshot_;
  }
  void OnHealth(std::function<void(bool)> heard) override {
    const std::scoped_lock lock(mutex_);
    heard_ = std::move(heard);
    if (heard_) heard_(snapshot_.healthy);
  }

 private:
  Status Outcome(std::string_view what) {
    Status status;
    {
      const std::scoped_lock lock(mutex_);
      status = std::exchange(fault_, {});
    }
    if (status.ok()) return status;
    status = status.WithContext(what);
    if (status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded) {
      failure_ = status;
      SetHealthy(false);
    }
    return status;
  }
  void SetHealthy(bool healthy) {
    healthy_ = healthy;
    const std::scoped_lock lock(mutex_);
    snapshot_ = {.generation = generation_, .healthy = healthy, .failure = failure_.ok() ? "" : failure_.ToString()};
    if (heard_) heard_(healthy);
  }

  const int64_t size_;
  base::BusyWait busy_wait_{base::BusyWait::Mode::kOff};
  // The owner's.
  bool healthy_ = false;
  Status failure_;
  int64_t generation_ = 0;
  std::vector<::hostir::v1::Measured> measured_;
  bool posted_ = false;  // Whoever holds the lock of a Watch.
  service::Wakeup answered_;

  mutable std::mutex mutex_;  // Guards all below.
  Status fault_;
  Snapshot snapshot_;
  std::function<void(bool)> heard_;
};

}  // namespace hir::fuzz
