// One rank's membership in a fixed group of ranks, and the communications it can post on a stream.
// Backends: local (simulated ranks), ucx and mpi (processes), nccl (GPUs); each in its own folder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/graph.h"
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
inline constexpr CommType kAllCommTypes[] = {
    CommType::kGather,    CommType::kAllgather,        CommType::kScatter,   CommType::kReduce,
    CommType::kAllreduce, CommType::kReduceScatter,    CommType::kBroadcast, CommType::kSendRecv,
    CommType::kAllToAll,  CommType::kCollectivePermute};
std::string_view CommTypeName(CommType type);  // "allgather"

// One rank is its `root`.
constexpr bool IsRooted(CommType type) {
  return type == CommType::kGather || type == CommType::kScatter || type == CommType::kReduce ||
         type == CommType::kBroadcast;
}
// Each rank says whom it sends `to`, and whom it receives `from`.
constexpr bool HasHalves(CommType type) { return type == CommType::kSendRecv || type == CommType::kCollectivePermute; }
// It adds up, or does whatever else `reduce` says.
constexpr bool Reduces(CommType type) {
  return type == CommType::kReduce || type == CommType::kAllreduce || type == CommType::kReduceScatter;
}

enum class ReduceOp : uint8_t { kSum, kProd, kMin, kMax, kMean };  // kMean: of floats alone.
std::string_view ReduceOpName(ReduceOp op);                        // "sum"

// A team of one communicator; made by Communicator::Team, valid as long as the communicator.
enum class TeamId : int32_t {};

inline constexpr int64_t kNoRank = -1;

// Memory of this rank that the other members of a team write into; every member has as much. Made by
// Communicator::MakeWindow; may outlive the communicator.
class Window {
 public:
  virtual ~Window() = default;
  virtual device::Buffer own() const = 0;
};

// One communication, as one rank sees it. n is the size of the team, `count` counts elements of
// `dtype`. A chunk is `count` elements; chunk j belongs to the j-th rank of the team. Buffers hold
// at least what is named here:
//
//   type                src             dst             meaning
//   kGather             count           n count (root)  dst chunk j = src of rank j, at `root`
//   kAllgather          count           n count         dst chunk j = src of rank j
//   kScatter            n count (root)  count           dst of rank j = src chunk j of `root`
//   kReduce             count           count (root)    dst = reduction of every src, at `root`
//   kAllreduce          count           count           dst = reduction of every src
//   kReduceScatter      n count         count           dst of rank j = reduction of the chunks j
//   kBroadcast          count (root)    count           dst = src of `root`
//   kAllToAll           n count         n count         dst chunk j of rank i = src chunk i of rank j
//   kSendRecv           count (to)      count (from)    src goes to rank `to`, dst is from `from`
//   kCollectivePermute  count (to)      count (from)    the same, as one collective of the team
//
// (root): there alone; elsewhere that buffer is not looked at. (to), (from): kNoRank says that the
// half is absent; its buffer is not looked at. `to` and `from` may be this rank (both or neither).
// A kSendRecv concerns the two ranks of each half; a kCollectivePermute is posted by every rank of
// the team, also by one that has neither half.
//
// In place: kAllreduce, kAllToAll, kSendRecv, kCollectivePermute: dst is src. kBroadcast, kReduce:
// dst is src at the root. kAllgather, and kGather at the root: src is this rank's chunk of dst.
// kReduceScatter, and kScatter at the root: dst is this rank's chunk of src. Any other overlap is
// an error.
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
  // Where a backend has the choice: by copies, also slower ones, which take no processors from work beside it.
  bool by_copies = false;
  // Optional, for a kCollectivePermute: dst lies in this rank's memory of it, and src goes into that of `to`, `put_at`
  // bytes behind its begin, without a copy on the way. All ranks of the team name one, or none.
  const Window* window = nullptr;
  int64_t put_at = 0;
  int64_t seq = 0;  // The number that errors and Progress() name it by; matching does not use it.
};

// Sequence numbers of the communications that this rank's streams started, and finished, last; -1:
// none.
struct CommProgress {
  int64_t entered = -1;
  int64_t left = -1;
};

// The posts that a graph holds, as one launch of it names them.
struct GraphPosts {
  int64_t count = 0;
  int64_t first_seq = 0;
  int64_t last_seq = 0;
};

// Threads: Team, Post, LaunchGraph, GroupBegin and GroupEnd come from one thread at a time; Abort and Progress
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
// every rank and for every size: results are equal to the bit in every backend (NaN payloads
// aside). f16 and bf16 are accumulated in f32 and rounded once. Integers wrap. bool: min and prod
// are "and", max and sum are "or". min and max of a NaN are NaN. A mean is the sum, divided by n before
// it is rounded.
//   nccl: what goes by peer memory (comm/peer) is like that too; else sums and products of floats are in an order that
// NCCL picks by type, dtype, count, team
// and machine. Every rank of a call gets the same bits, and so does a repeated call as far as NCCL
// keeps to that choice, which it does not promise. A sum differs from the exact one by at most
// (n - 1) u / (1 - (n - 1) u) times the sum of absolute values, u the unit roundoff of the dtype (f16
// and bf16 too: they may be rounded at every step); a product likewise by its absolute value, when
// nothing underflows. A mean is ncclAvg: every contribution is multiplied by 1 / n before it is added, which takes no
// pass over memory, works in graphs, and overflows only where the mean does; it is off by at most as the sum of two
// ranks more, divided by n. min and max may lose a NaN. The rest is equal to the bit: integers, bools (of bytes 0
// and 1), min and max of numbers, whatever only moves.
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

  // Memory of `bytes` on every member of `team`. Collective over them; slow.
  //
  // Errors:  kUnavailable, kUnimplemented   there is none, on all of them alike;
  //          kDeadlineExceeded              a member did not call it in time.
  virtual Result<std::shared_ptr<const Window>> MakeWindow(TeamId team, int64_t bytes) {
    static_cast<void>(team), static_cast<void>(bytes);
    return Status(Code::kUnimplemented, "this communicator has no memory that ranks share");
  }

  // Queues `desc` on `stream`. Never blocks.
  //
  // Errors:  kInvalidArgument   the rules at CommDesc do not hold: the message names type, seq and
  // rule;
  //                             (kUnimplemented where a backend lacks the dtype); nothing was queued;
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

  // The most memory of this rank that it ever held for data on its way, beside src and dst. Counted by ucx and mpi,
  // without what these libraries keep themselves.
  virtual int64_t peak_bytes() const { return 0; }

  // Whether what is posted on a stream in a capture (device::Device::BeginCapture) becomes part of
  // the graph. Each rank captures for itself: while one captures or replays a communication, others
  // may queue it. A post that was captured is queued by no call but LaunchGraph.
  virtual bool can_capture() const { return false; }

  // Queues `graph`, in which posts of this communicator were captured, on `stream`. It counts as
  // one communication, from its first work to its last: so long is its deadline, and when it fails,
  // or is aborted, its communications end, and `stream` fails behind it. Never blocks. REQUIRES: the
  // streams of its posts are not used between this and its end; graphs with posts are destroyed
  // before the communicator.
  //
  // Errors:  the first cause    the communicator is poisoned, and nothing was queued;
  //          kUnimplemented     this communicator cannot capture.
  virtual Status LaunchGraph(device::Graph& graph, device::Stream& stream, const GraphPosts& posts) {
    static_cast<void>(graph), static_cast<void>(stream), static_cast<void>(posts);
    return Unimplemented("this communicator's posts cannot be captured");
  }
};

}  // namespace hir::comm
