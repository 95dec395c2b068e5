// PoolExecutor: the Executor of real threads.
#pragma once

#include <cstddef>

#include "csrc/base/work_pool.h"
#include "csrc/device/host/executor.h"

namespace hir::device {

class PoolExecutor final : public Executor {
 public:
  PoolExecutor(int num_threads, size_t queue_depth_max)
      : pool_({.num_threads = num_threads, .queue_depth_max = queue_depth_max}) {}

  int num_threads() const override { return pool_.num_threads(); }
  bool direct() const override { return true; }
  bool Post(int64_t, std::function<void()> work) override { return pool_.Post(std::move(work)); }
  bool LendThread() override { return pool_.LendThread(); }
  bool Block(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, const std::function<bool()>& done,
             base::Nanos timeout) override {
    return changed.wait_for(lock, timeout, done);
  }

 private:
  base::WorkPool pool_;
};

}  // namespace hir::device
