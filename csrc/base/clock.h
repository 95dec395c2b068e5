// Time, as something a test can replace. Thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hir::base {

using Nanos = std::chrono::nanoseconds;

// Milliseconds that somebody else says: none below 0, and at most a hundred years.
inline Nanos FromMs(int64_t ms) {
  constexpr int64_t kMost = int64_t{100} * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, kMost));
}

class Clock {
 public:
  virtual ~Clock() = default;
  // Since an arbitrary start; never goes back.
  virtual Nanos Now() const = 0;
  // The machine's steady clock.
  static const Clock& Steady();
};

inline Nanos Now() { return Clock::Steady().Now(); }

}  // namespace hir::base
