// MpiOp: one communication as calls of MPI, one after the other, and the additions between them.
//
// n ranks, b bytes a chunk. What a rank sends:
//
//   type                         calls                                    bytes
//   gather, allgather, scatter,  the collective of that name              as MPI does it
//   broadcast, all_to_all
//   send_recv,                   Isend and Irecv                          b
//   collective_permute
//   reduce_scatter               Ialltoallv, add *                        (n - 1) b
//   allreduce up to 32 KiB       Iallgather, add                          (n - 1) b
//   allreduce beyond             Ialltoallv, add a block, Iallgatherv *   2 (n - 1) b / n
//   reduce up to 32 KiB          Igather, the root adds                   b
//   reduce beyond                Ialltoallv, add a block, Igatherv *      b
//
// * Segment by segment, so that what has arrived and is not yet added takes a MiB, however long the vector is. The
// contributions to a segment are asked for while the sum of the one before it is sent around. In place this is safe: a
// segment's own contributions have left when its sum arrives.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "multidevice/comm/engine/engine.h"

namespace hir::comm {

class MpiOp;
class MpiTransport;

struct MpiTeam final : TransportTeam {
  ~MpiTeam() override;
  MPI_Comm comm = MPI_COMM_NULL;  // Its ranks are in the team's order.
  mutable bool stuck = false;     // Something in it never ended: it is left to MPI.
  // MPI matches collectives by the order of the calls, and when a rank can make the next call of a communication
  // depends on others: until it has made the last, those that come behind wait.
  mutable bool next_call_is_due = false;
  mutable std::deque<MpiOp*> waiting;
};

class MpiOp final : public PendingComm {
 public:
  MpiOp(Engine& engine, MpiTransport& transport, const CommOp& op);
  ~MpiOp() override;

  void Begin() override;
  void Advance() override;
  bool over() const override { return over_; }
  void Cancel() override;
  bool receiving() const override { return num_requests_ > num_sends_; }
  bool idle() const override { return num_requests_ == 0; }
  std::string WhatIsMissing(base::Nanos waited) const override;

  // Asks MPI, and calls Engine::Changed when the calls that are under way are done. Whether it did.
  bool Test();

 private:
  // Elements that are of, or for, each rank of the team.
  struct Blocks {
    std::vector<int> counts, starts;
  };

  const CommDesc& desc() const { return op_.desc; }
  const MpiTeam& team() const { return static_cast<const MpiTeam&>(*op_.team); }
  int64_t size() const { return op_.team->info->size(); }
  int64_t index() const { return op_.team->info->index; }
  int64_t chunk_bytes() const;
  bool at_root() const { return team().info->ranks[static_cast<size_t>(index())] == desc().root; }
  int root() const;  // Its place in the team.
  MPI_Datatype type() const;
  int count() const { return static_cast<int>(desc().count); }

  MPI_Request* Next() { return &requests_[static_cast<size_t>(num_requests_++)]; }
  void Check(int error);  // What a call of MPI returned.
  std::byte* Scratch(int64_t bytes);

  void Pass();         // One message each way.
  void Call();         // The first call of a collective of MPI.
  void Move();         // The types that add nothing.
  void StartReduce();  // The first call of those that add.
  void AddAndGoOn();   // What follows it.
  // By segments. Those that end in every block, or the root's, have a second call for each.
  bool CallsTwice() const { return desc().type != CommType::kReduceScatter; }
  int64_t BlockMax() const;  // Elements of a segment that one rank adds.
  void AskForParts();        // The first call, for segment_.
  void SendSum();            // The second, for the segment in sum_.
  void AddSegment();
  void LetOthersCall();
  Blocks BlocksOf(int64_t segment) const;
  // dst[i] = the reduction over the ranks of what is at `parts`, one behind the other.
  void Add(const std::byte* parts, int64_t count, std::byte* dst) const;

  Engine& engine_;
  MpiTransport& transport_;
  const CommOp& op_;
  std::array<MPI_Request, 2> requests_ = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int num_requests_ = 0;
  int num_sends_ = 0;  // The first of them; the rest write into our memory.
  bool over_ = false;
  std::byte* parts_ = nullptr;  // What is to be added.
  std::byte* block_ = nullptr;  // What was added, where it does not end here.
  std::vector<ScratchMemory> scratch_;
  int64_t num_segments_ = 0;  // 0: it does not go by segments.
  int64_t segment_ = 0;       // Whose contributions are asked for.
  int64_t calls_left_ = 0;
  // Of the segment that is asked for: where each rank's block is in src, and my block n times in parts_; of the one
  // that is sent around, where each block goes in dst. MPI reads them until the call is done.
  Blocks asked_, mine_, sum_;
};

class MpiTransport final : public Transport {
 public:
  PendingPtr Make(Engine& engine, const CommOp& op) override;
  base::Found Progress() override;
  bool Arm() override { return true; }
  int fd() const override { return -1; }
  base::Nanos sleep_max() const override { return std::chrono::microseconds(50); }
  void Close(base::Nanos) override {}

  void Add(MpiOp& op) { ops_.push_back(&op); }
  void Remove(const MpiOp& op) { std::erase(ops_, &op); }

 private:
  std::vector<MpiOp*> ops_;  // Under way.
};

}  // namespace hir::comm
