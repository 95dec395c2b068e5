// The 64 bits by which UCX matches a message.
#pragma once

#include <cstdint>

namespace hir::comm {

// From the highest bits down: generation 8, team 12 (the receiver's number for it), kind 1
// (collective or between two ranks), sender 10, number 16, phase 1, segment 16. Generation and
// number wrap: what is told apart is what can be in flight at once, and equal tags match in the
// order of sending.
struct Tag {
  int64_t generation = 0;
  int64_t team = 0;
  bool pair = false;
  int64_t sender = 0;  // Rank of the communicator.
  int64_t number = 0;
  int phase = 0;
  int64_t segment = 0;

  uint64_t Bits() const {
    const auto part = [](int64_t value, int bits, int shift) {
      return (static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1)) << shift;
    };
    return part(generation, 8, 56) | part(team, 12, 44) | part(pair ? 1 : 0, 1, 43) | part(sender, 10, 33) |
           part(number, 16, 17) | part(phase, 1, 16) | part(segment, 16, 0);
  }
};
inline constexpr int64_t kTeamsMax = 1 << 12;
inline constexpr int64_t kRanksMax = 1 << 10;

}  // namespace hir::comm
