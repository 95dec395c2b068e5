// A small seeded generator for tests, simulations and random programs: the same seed gives the same sequence on
// every machine (std::uniform_int_distribution does not). Not for secrets.
#pragma once

#include <cstdint>

#include "csrc/base/check.h"

namespace hir::base {

class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, n). REQUIRES: n > 0.
  int64_t Below(int64_t n) {
    HIR_CHECK(n > 0);
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace hir::base
