// Time, as something a test can replace. Thread-safe.
#pragma once

#include <chrono>

namespace hir::base {

using Nanos = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  // Since an arbitrary start; never goes back.
  virtual Nanos Now() const = 0;
  // The machine's steady clock.
  static const Clock& Steady();
};

}  // namespace hir::base
