// Stopwatch: wall-clock time since it was made.
#pragma once

#include <chrono>

#include "csrc/base/clock.h"

namespace hir::base {

class Stopwatch {
 public:
  double Ms() const { return std::chrono::duration<double, std::milli>(Clock::Steady().Now() - begin_).count(); }

 private:
  Nanos begin_ = Clock::Steady().Now();
};

}  // namespace hir::base
