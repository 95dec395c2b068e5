// Heartbeat: when ranks at rest are asked for a sign of life, and when they have been silent for too long.
#pragma once

#include "csrc/base/clock.h"

namespace hir::service {

// Times are of the caller's clock. Threads: one at a time.
class Heartbeat {
 public:
  // `every` so often ranks that have said nothing are asked; 0: never. `silence_max`: so long an answer may take, of
  // the time in which the caller looked: when that was stopped or kept from the processor, so were they, maybe, and no
  // look counts for more than `every`.
  Heartbeat(base::Nanos every, base::Nanos silence_max) : every_(every), silence_max_(silence_max) {}
  // Three beats, and what a machine may take that has too much to do.
  static base::Nanos SilenceMax(base::Nanos every) { return 3 * every + std::chrono::seconds(2); }

  // All ranks have said something.
  void Heard(base::Nanos now);
  enum class Next { kNothing, kAsk, kGiveUp };
  // `answered`: whether all have answered since the latest kAsk.
  Next Look(base::Nanos now, bool answered);
  // When to look the next time.
  base::Nanos due() const;

 private:
  const base::Nanos every_;
  const base::Nanos silence_max_;
  base::Nanos heard_at_ = {};
  bool asked_ = false;
  base::Nanos looked_at_ = {};  // Since then:
  base::Nanos silent_for_ = {};
};

}  // namespace hir::service
