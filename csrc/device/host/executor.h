// Executor: who runs the work of a host device's streams, and how a thread waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "csrc/base/clock.h"

namespace hir::device {

// Real threads (PoolExecutor), or a simulation that runs everything in an order of its own.
// Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;

  // How many pieces of work run at once.
  virtual int num_threads() const = 0;
  // Whether waits and starts of AsyncOps may happen on the thread that makes them possible, without Post.
  virtual bool direct() const = 0;
  // Runs `work`, which belongs to the device's stream number `stream`, later, never inside this
  // call. False, and nothing posted, when the queue is full.
  [[nodiscard]] virtual bool Post(int64_t stream, std::function<void()> work) = 0;
  // As base::WorkPool. Called where direct() alone.
  virtual bool LendThread() { return false; }

  // Blocks until done() is true, which is asked under `lock`; false after `timeout`. `changed` is
  // notified whenever done() may have become true.
  virtual bool Block(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                     const std::function<bool()>& done, base::Nanos timeout) = 0;
};

}  // namespace hir::device
