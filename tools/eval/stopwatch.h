// Stopwatch: wall-clock time since it was made.
#pragma once

#include <chrono>

#include "csrc/base/clock.h"

namespace hir::eval {

class Stopwatch {
 public:
  double Ms() const {
    return std::chrono::duration<double, std::milli>(base::Clock::Steady().Now() - begin_).count();
  }

 private:
  base::Nanos begin_ = base::Clock::Steady().Now();
};

}  // namespace hir::eval
