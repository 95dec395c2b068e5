// Which communications go by peer memory, and how: the one table of crossovers.
#pragma once

#include <cstdint>

#include "multidevice/comm/communicator.h"

namespace hir::comm {

enum class PeerPath : uint8_t {
  kNone,    // The library's.
  kPush,    // A kernel that pushes all of it at once.
  kCopies,  // The copy engine, piece by piece.
  kPuts,    // The copy engine, straight into the other's window.
};

inline constexpr int64_t kNoBytes = int64_t{1} << 60;  // More than anything has.

// Bytes are those of a message from one rank to one other.
struct PeerPaths {
  // From docs/performance.md, "Small messages" and "Collectives by peer memory": medians on two H100s.
  int64_t push_bytes_max = int64_t{512} << 10;
  int64_t copies_bytes_min = int64_t{1} << 20;           // Of those that are wanted by copies.
  int64_t copies_alone_bytes_min = kNoBytes;             // Of others: the library is 2 to 10 % faster alone,
  int64_t reduce_scatter_bytes_min = int64_t{16} << 20;  // but for this one.
};

// The path of a communication in a team of `ranks`, whose rooms take pushes of `push_bytes`.
PeerPath PathOf(const CommDesc& desc, int64_t ranks, int64_t push_bytes, const PeerPaths& paths);

}  // namespace hir::comm
