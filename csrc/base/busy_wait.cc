#include "csrc/base/busy_wait.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace hir::base {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long a thread that sleeps takes to wake.
constexpr Nanos kWake = microseconds(50);
// Threads of ours that look give a core back within microseconds, and client and ranks of a short run within half a
// millisecond each. A neighbour that computes keeps it for a slice of some 3 ms. Where clients wait, whatever is longer
// than waking is lost: they keep the cores by turns, and one that sleeps would have its own back at once.
constexpr Nanos kLongYield = microseconds(1500);
// So much of what was saved counts: a neighbour that now and then takes a core for a moment does not end the looking,
// and one that stays does within a few slices.
constexpr Nanos kSavedMax = milliseconds(10);
// A look beside a neighbour costs a slice of some 3 ms, once a pause, in every process of a run.
constexpr Nanos kPauseMin = milliseconds(50);
constexpr Nanos kPauseMax = milliseconds(5000);

}  // namespace

BusyWait::BusyWait(Mode mode) : BusyWait(mode, Clock::Steady(), [] { sched_yield(); }) {}

BusyWait::BusyWait(Mode mode, const Clock& clock, std::function<void()> yield)
    : mode_(mode), clock_(clock), yield_(std::move(yield)), pause_(kPauseMin) {}

BusyWait& BusyWait::OfProcess() {
  static BusyWait of_process(Mode::kAuto);
  return of_process;
}

bool BusyWait::Pays() const {
  switch (mode_.load(std::memory_order_relaxed)) {
    case Mode::kOff: return false;
    case Mode::kOn: return true;
    case Mode::kAuto: break;
  }
  const Nanos until = paused_until_.load(std::memory_order_relaxed);
  return until == Nanos::min() || clock_.Now() >= until;
}

void BusyWait::set_clients_wait(bool wait) {
  if (clients_wait_.load(std::memory_order_relaxed) == wait) return;
  const std::scoped_lock lock(mutex_);
  clients_wait_.store(wait, std::memory_order_relaxed);
  if (wait) return;
  pause_ = kPauseMin;
  paused_until_.store(Nanos::min(), std::memory_order_relaxed);
}

void BusyWait::Found(Nanos yielded) {
  if (mode_.load(std::memory_order_relaxed) != Mode::kAuto) return;
  const std::scoped_lock lock(mutex_);
  saved_ += kWake;
  if (yielded >= (clients_wait_ ? kWake : kLongYield)) saved_ -= yielded;
  if (saved_ >= kSavedMax) {
    saved_ = kSavedMax;
    pause_ = kPauseMin;
  }
  if (saved_ >= Nanos{}) return;
  saved_ = {};
  paused_until_.store(clock_.Now() + pause_, std::memory_order_relaxed);
  pause_ = std::min(2 * pause_, kPauseMax);
}

Look::Look(BusyWait& busy_wait, Nanos most, int more)
    : busy_wait_(busy_wait),
      pays_(busy_wait.Pays()),
      until_(busy_wait.clock_.Now() + most),
      now_(until_ - most),
      more_(more) {}

bool Look::IsOver() {
  over_ = over_ || !pays_ || (now_ >= until_ && --more_ < 0);
  if (over_) return true;
  const Nanos before = looked_ ? now_ : busy_wait_.clock_.Now();
  looked_ = true;
  busy_wait_.yield_();
  now_ = busy_wait_.clock_.Now();
  yielded_ = now_ - before;
  return false;
}

}  // namespace hir::base
