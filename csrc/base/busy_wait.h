// BusyWait: whether a thread looks a moment for what it waits for before it sleeps. A thread that sleeps takes some
// 50 us to wake; one that looks and yields may come back late, when the core's other user keeps it for a slice of
// milliseconds. kAuto looks while that pays, and stops for a while where cores are shared.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "csrc/base/clock.h"

namespace hir::base {

// Any thread. One for threads that share cores: a process has one.
class BusyWait {
 public:
  enum class Mode { kOff, kOn, kAuto };

  explicit BusyWait(Mode mode);
  // With a clock and a `yield` of its own: for tests and simulations.
  BusyWait(Mode mode, const Clock& clock, std::function<void()> yield);

  // The one of this process. kAuto until it is told otherwise.
  static BusyWait& OfProcess();
  void set_mode(Mode mode) { mode_.store(mode, std::memory_order_relaxed); }

  // Whether looking is worth it now.
  bool Pays() const;
  // Whether several clients wait for their turns: a core that one of them takes is then no gain to the run under way.
  // Afterwards there is nothing to be learned from what was lost meanwhile.
  void set_clients_wait(bool wait);

 private:
  friend class Look;
  void Found(Nanos yielded);  // By a look whose last yield took so long.

  std::atomic<Mode> mode_;
  const Clock& clock_;
  const std::function<void()> yield_;
  std::atomic<bool> clients_wait_ = false;
  std::atomic<Nanos> paused_until_ = Nanos::min();
  std::mutex mutex_;
  Nanos saved_ = {};  // By looking, lately, less what it cost. Guarded by mutex_, as the next.
  Nanos pause_;       // The next one.
};

// One look of one thread:
//
//   Look look(busy_wait, most);
//   while (!IsThere()) {
//     if (look.IsOver()) return Sleep();
//   }
//   look.Found();
class Look {
 public:
  // Looks for `most`, and then `more` times, as with fewer cores than threads a yield may take long; not at all where
  // that does not pay.
  Look(BusyWait& busy_wait, Nanos most, int more = 0);

  // Whether it is time to sleep. If not, others have had the core: look again.
  bool IsOver();
  // The wait is over: it counts where looking made the difference, so IsOver was asked, and said no.
  void Found() {
    if (looked_ && !over_) busy_wait_.Found(yielded_);
  }

 private:
  BusyWait& busy_wait_;
  const bool pays_;
  const Nanos until_;
  Nanos now_;
  int more_;
  bool looked_ = false;
  bool over_ = false;
  Nanos yielded_ = {};
};

}  // namespace hir::base
