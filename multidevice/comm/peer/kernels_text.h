// The kernels of comm/peer, as CUDA C++: compiled at run time, and by tests for CPUs.
#pragma once

#include <string_view>

namespace hir::comm {

// In front of kPeerText: what a GPU has instructions for, and a CPU functions (the tests').
extern const std::string_view kPeerIntrinsics;
// hir_peer_push and hir_peer_reduce; their slots are those of PushSlots and ReduceSlots.
extern const std::string_view kPeerText;

inline constexpr int kPeerThreads = 512;  // Of a CTA.
inline constexpr int kPeerRanksMax = 32;  // Of a team.
inline constexpr int kPeerSlots = 16 + kPeerRanksMax;

// The slots of hir_peer_push, which carries out a small communication whole: every rank pushes a message to every
// other, in units of 8 bytes with a number beside each half; and reads those of the others as they come.
enum PushSlot {
  kPushDst,
  kPushSrc,
  kPushBytes,      // Of a message.
  kPushSrcStride,  // From the message to one rank to that to the next; 0: all get the same.
  kPushDstStride,  // From the message of one rank to that of the next; where they are reduced, not used.
  kPushReduce,     // A ReduceOp; -1: messages are kept one behind the other.
  kPushDType,
  kPushRanks,
  kPushPlace,    // This rank's, in the team.
  kPushControl,  // This rank's PushControl.
  kPushUnits,    // Of room for one message.
  kPushNanosMax,
  kPushRooms = 16,  // Of each rank: where its messages arrive, one room for each half and sender.
};

// The slots of hir_peer_reduce: dst[i] = srcs[0][i] op srcs[1][i] op ...
enum ReduceSlot { kReduceDst, kReduceCount, kReduceOp, kReduceDType, kReduceRanks, kReduceSrcs = 16 };

// The state of a team's pushes, in device memory from call to call: 64-bit words.
enum PushControl { kPushNumber, kPushDone, kPushAbort, kPushControlWords };

}  // namespace hir::comm
