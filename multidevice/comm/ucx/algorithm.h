// Algorithms: how a communication is made of messages. No UCX here: an algorithm sees a Wire.
//
// Short collectives of a team on one node go another way (ucx_team.h, shared_op.h): 1 round, in which every rank copies
// what it has for others into its slot once, b bytes or n b, and each that needs it reads it there.
//
// Every one moves each byte as few times as any can (n ranks, b bytes per chunk):
//
//   type                algorithm      rounds         bytes sent per rank
//   allgather           direct         1              (n - 1) b, to at most 4 ranks at a time
//   all_to_all          direct         1              (n - 1) b, to at most 4 ranks at a time
//   send_recv,
//   collective_permute  direct         1              b
//   gather              direct         1              b, the root 0 (it receives (n - 1) b)
//   scatter             direct         1              the root (n - 1) b, others 0
//   broadcast
//     up to 256 KiB     binomial tree  ceil(log2 n)   at most ceil(log2 n) b, in segments that are
//                                                     passed on at once
//     beyond            dealt out      2              the root b, others (n - 2) b / (n - 1): the root deals
//                                                     segments out, who gets one sends it to all others
//   reduce_scatter      pairwise       1              (n - 1) b: each rank gets all parts of its
//                                                     chunk and adds them
//   allreduce
//     up to 32 KiB      pairwise       1              (n - 1) b: everybody gets and adds everything
//     beyond            pairwise       2              2 (n - 1) b / n: pairwise reduce_scatter, each
//                                                     finished segment sent to all at once
//   reduce
//     up to 32 KiB      direct         1              b, the root 0: it gets and adds everything
//     beyond            pairwise       2              b, the root (n - 1) b / n: pairwise
//                                                     reduce_scatter, each finished segment sent to
//                                                     the root, which receives 2 (n - 1) b / n and
//                                                     adds 1 / n of all
//
// Where a team is on several nodes, three go in two levels, so that no byte goes to a node twice:
//
//   allgather           the k-th of a node sends its chunk to the k-th of each other one, around, which passes it on
//                       there: a node with r ranks receives (n - r) b, where directly it is r (n - r) b
//   broadcast           a tree of nodes, and one within each: a node receives b
//   allreduce           beyond 32 KiB, of nodes with as many ranks each: what a node has added up, in the order of the
//                       team, goes on to the next, and the last one's sums come back: a node receives 2 b at most,
//                       where directly it is 2 r (n - r) b / n
//
// A reduction around a ring, or by halves, adds in another order on every rank, and an allgather around a ring was
// slower (README.md). Pairwise, the owner of a chunk adds all parts in the order of the team, accumulates f16 and bf16
// in f32, and rounds once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "multidevice/comm/communicator.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// One message, as its algorithm names it. Sender and receiver use the same phase and segment.
struct Transfer {
  bool is_send = false;
  int64_t peer = 0;     // Index in the team.
  int phase = 0;        // 0 or 1.
  int64_t segment = 0;  // In [0, kSegmentsMax).
  int64_t of = -1;      // Who is waited for, where the peer passes on what is another's. The wire does not say it.
};
inline constexpr int64_t kSegmentsMax = int64_t{1} << 16;

// Up to here a broadcast goes down the tree; beyond, what spreads the sending over the ranks.
inline constexpr int64_t kBroadcastTreeBytesMax = 256 * 1024;

// Where an algorithm puts its messages. Bytes stay put until the transfer is done.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual void Send(const Transfer& transfer, const std::byte* data, int64_t bytes) = 0;
  virtual void Recv(const Transfer& transfer, std::byte* data, int64_t bytes) = 0;
  // Memory that lasts as long as the algorithm.
  virtual std::byte* Scratch(int64_t bytes) = 0;
};

// One rank's part of one communication. It is over when none of its transfers is pending.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void Begin(Wire& wire) = 0;
  // `transfer`, which was put on the wire, is done.
  virtual void Done(Wire& wire, const Transfer& transfer) = 0;
};

// `node_of`: the node of each place in the team, from 0 on; empty: they all share memory.
// REQUIRES: CheckDesc passed and count > 0. `desc`, `team` and `node_of` outlive the algorithm.
std::unique_ptr<Algorithm> MakeAlgorithm(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of,
                                         int64_t rank);

std::unique_ptr<Algorithm> MakeDirect(const CommDesc& desc, const TeamInfo& team, int64_t rank);
std::unique_ptr<Algorithm> MakeTwoLevelGather(const CommDesc& desc, const TeamInfo& team,
                                              std::span<const int64_t> node_of, int64_t rank);
std::unique_ptr<Algorithm> MakeBroadcast(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of);
std::unique_ptr<Algorithm> MakeReduction(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of);
// An allreduce. `nodes`: EqualNodes.
std::unique_ptr<Algorithm> MakeTwoLevelReduction(const CommDesc& desc, const TeamInfo& team, int64_t nodes);
// On how many nodes a team is that have as many ranks of it each, several, side by side; else 0.
int64_t EqualNodes(std::span<const int64_t> node_of);

}  // namespace hir::comm
