// Scheduler: everything that happens in a simulation, one thing at a time, in an order drawn from a
// seed.
//
// What can happen next (a stream's work, a message, a rank's thread going on) waits in one ready
// list; a seeded generator picks from it. Time stands still while something is ready; then it jumps
// to the next timer. So the same seed gives the same run, and every order that the waits of a
// program allow comes up with some seed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/prng.h"

namespace hir::comm {

// Threads: one thing runs at a time: a piece of work, on the thread that drives, or one thread of
// Run. Those may call everything; another thread may call Ready and At only, and then the order is
// no longer the seed's alone.
class Scheduler final : public base::Clock {
 public:
  explicit Scheduler(uint64_t seed) : random_(seed) {}
  ~Scheduler() override;

  base::Nanos Now() const override;
  // A draw from the run's own generator, in [0, n).
  int64_t Draw(int64_t n);

  // `work` may happen from now on; `name` is its line in the trace, and may be empty: then it has
  // none.
  void Ready(std::string name, std::function<void()> work);
  // `work` happens when nothing is ready and the time has come.
  void At(base::Nanos time, std::function<void()> work);

  // Runs bodies[i], each on a thread of its own, until all have returned and nothing is ready.
  // Threads take turns: one runs until it blocks. Drives; not from inside the simulation.
  void Run(const std::vector<std::function<void()>>& bodies);
  // Drives until nothing is ready; timers stay.
  void RunUntilIdle();

  // Executor::Block for the calling thread: one of Run gives up its turn; another drives meanwhile.
  bool Block(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, base::Nanos timeout);

  void Trace(std::string line);
  std::vector<std::string> trace() const;

 private:
  struct Item {
    std::string name;
    std::function<void()> work;
  };
  struct Turn {  // One thread of Run.
    std::binary_semaphore go{0};
    bool finished = false;
    const std::function<bool()>* done = nullptr;  // Blocked until this holds,
    std::mutex* mutex = nullptr;                  // asked under this,
    base::Nanos deadline = {};                    // or until then.
    std::jthread thread;
  };

  bool Step();         // One thing; false: nothing was ready.
  bool StepOrTimer();  // One thing, or else the next timer; false: there was none either.
  void GoOn(Turn& turn);
  void WakeTurns();  // Blocked threads whose condition holds become ready.
  Turn* CurrentTurn();

  mutable std::mutex mutex_;
  base::Prng random_;  // Guarded by mutex_, as are the next four.
  base::Nanos now_ = {};
  std::vector<Item> ready_;
  std::multimap<base::Nanos, std::function<void()>> timers_;
  std::vector<std::string> trace_;
  std::vector<std::unique_ptr<Turn>> turns_;  // Written while no thread of Run has its turn.
  std::binary_semaphore back_{0};             // A thread of Run has given up its turn.
};

}  // namespace hir::comm
