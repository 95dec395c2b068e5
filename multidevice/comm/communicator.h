// One rank's membership in a fixed group of ranks, and the communications it can post on a stream.
// Backends: local (simulated ranks), ucx (processes); each in its own folder.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/stream.h"

namespace hir::comm {

enum class CommType : uint8_t {
  kGather,
  kAllgather,
  kScatter,
  kReduce,
  kAllreduce,
  kReduceScatter,
  kBroadcast,
  kSendRecv,
  kAllToAll,
  kCollectivePermute,
};
std::string_view CommTypeName(CommType type);  // "allgather"

enum class ReduceOp : uint8_t { kSum, kProd, kMin, kMax };
std::string_view ReduceOpName(ReduceOp op);  // "sum"

// A team of one communicator; made by Communicator::Team, valid as long as the communicator.
enum class TeamId : int32_t {};

inline constexpr int64_t kNoRank = -1;

// One communication, as one rank sees it. n is the size of the team, `count` counts elements of
// `dtype`. A chunk is `count` elements; chunk j belongs to the j-th rank of the team. Buffers hold
// at least what is named here:
//
//   type            src          dst          meaning
//   kAllgather      count        n * count    dst chunk j = src of rank j
//   kAllreduce      count        count        dst = reduction of every src
//   kReduceScatter  n * count    count        dst of rank j = reduction of every rank's chunk j
//   kBroadcast      count (root) count        dst = src of `root`; src is not looked at elsewhere
//   kAllToAll       n * count    n * count    dst chunk j of rank i = src chunk i of rank j
//   kSendRecv       count (to)   count (from) src goes to rank `to`, dst comes from rank `from`;
//   kNoRank: that half is
//                                             absent. Both halves on every rank make a permutation;
//                                             `to` and `from` may be this rank (both or neither)
//   the others      answer kUnimplemented
//
// In place: kAllreduce, kAllToAll, kSendRecv: dst is src. kBroadcast: dst is src at the root.
// kAllgather: src is this rank's chunk of dst. kReduceScatter: dst is this rank's chunk of src. Any
// other overlap is an error.
struct CommDesc {
  CommType type = CommType::kAllreduce;
  TeamId team = {};
  int64_t root = kNoRank;  // A rank of the communicator, in the team.
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int64_t count = 0;  // >= 0; the same on every rank. 0 synchronises nothing and moves nothing.
  device::Buffer src = {};
  device::Buffer dst = {};
  int64_t to = kNoRank;  // Ranks of the communicator, in the team.
  int64_t from = kNoRank;
  int64_t seq = 0;  // The number that errors and Progress() name it by; matching does not use it.
};

// Sequence numbers of the communications that this rank's streams started, and finished, last; -1:
// none.
struct CommProgress {
  int64_t entered = -1;
  int64_t left = -1;
};

// Threads: Team, Post, GroupBegin and GroupEnd come from one thread at a time; Abort and Progress
// from any.
//
// Completion: Post returns when the work is queued, not when it is done: src must stay unchanged,
// and dst unread, until an event recorded on the stream after the post has fired. There is no other
// completion.
//
// Matching: every rank of a team posts that team's collectives in one order, from whatever streams;
// between two ranks of a team their kSendRecv halves match in order. Collectives of one team must
// reach the front of their streams in that order too, else they wait for each other: what shall
// progress independently uses teams of different lanes.
//
// Numerics: every element is reduced in the order of the team's ranks, left to right, the same on
// every rank, for every size and in every backend: results are equal to the bit (NaN payloads aside). f16 and bf16 are
// accumulated in f32 and rounded once. Integers wrap. bool: min and prod are "and", max and sum are
// "or". min and max of a NaN are NaN.
//
// Failure: argument errors return before anything is queued. A later failure (a deadline, a peer,
// Abort, a stream that had failed and skips a communication) poisons the communicator: pending
// communications fail their streams with the first cause, and so does every later post. After that
// it only accepts destruction.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  // In [0, size()).
  virtual int64_t size() const = 0;

  // The team of `ranks`, in this order (it is the order of chunks and of additions). Collective
  // over `ranks`: every one of them calls it; the same ranks and lane again give the same team at
  // once. Slow: for prepare, not for runs.
  //
  // Errors:  kInvalidArgument   ranks is empty, repeats one, names one outside [0, size()), or
  // lacks rank();
  //          kDeadlineExceeded  a member did not call it in time.
  virtual Result<TeamId> Team(std::span<const int64_t> ranks, int64_t lane) = 0;

  // Queues `desc` on `stream`. Never blocks.
  //
  // Errors:  kInvalidArgument   the rules at CommDesc do not hold: the message names type, seq and
  // rule;
  //          kUnimplemented     this backend has no such type; nothing was queued in either case;
  //          the first cause    the communicator is poisoned.
  virtual Status Post(const CommDesc& desc, device::Stream& stream) = 0;

  // What is posted between the two starts together and, on each stream, ends together: so a send
  // and a receive of one stream cannot wait for each other. Groups do not nest. An error of a Post
  // leaves that one out.
  virtual Status GroupBegin() = 0;
  virtual Status GroupEnd() = 0;

  // Poisons the communicator with `cause`, from any thread, once (later calls change nothing).
  // Pending communications end within a second, and no longer touch their buffers then. REQUIRES:
  // cause is not OK.
  virtual void Abort(Status cause) = 0;

  // Waits for nothing.
  virtual CommProgress Progress() const = 0;
};

}  // namespace hir::comm
