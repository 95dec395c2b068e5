// MpiOp: one communication as calls of MPI, one after the other, and the additions between them.
//
// n ranks, b bytes a chunk. What a rank sends:
//
//   type                         calls                                    bytes
//   gather, allgather, scatter,  the collective of that name              as MPI does it
//   broadcast, all_to_all
//   send_recv,                   Isend and Irecv                          b
//   collective_permute
//   reduce_scatter               Ialltoall, add                           (n - 1) b
//   allreduce up to 32 KiB       Iallgather, add                          (n - 1) b
//   allreduce beyond             Ialltoallv, add a block, Iallgatherv     2 (n - 1) b / n
//   reduce up to 32 KiB          Igather, the root adds                   b
//   reduce beyond                Ialltoallv, add a block, Igatherv        b
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
  // MPI matches collectives by the order of the calls, and when a rank can make the second call of a communication
  // depends on others: until it has, those that come behind wait.
  mutable bool second_call_is_due = false;
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
  // Block i of `count` elements over the team: the first count % n have one more.
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
  void CallAgain();    // The second call of those that have one.
  void LetOthersCall();
  Blocks Divide() const;
  // dst[i] = the reduction over the ranks of what is at `parts`, one behind the other.
  void Add(const std::byte* parts, int64_t count, std::byte* dst) const;

  Engine& engine_;
  MpiTransport& transport_;
  const CommOp& op_;
  std::array<MPI_Request, 2> requests_ = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int num_requests_ = 0;
  int num_sends_ = 0;  // The first of them; the rest write into our memory.
  int step_ = 0;
  bool over_ = false;
  std::byte* parts_ = nullptr;  // What is to be added.
  std::byte* block_ = nullptr;  // What was added.
  std::vector<ScratchMemory> scratch_;
  // Of every rank's block, and of my block n times. MPI reads them until the call is done.
  Blocks blocks_, mine_;
};

class MpiTransport final : public Transport {
 public:
  PendingPtr Make(Engine& engine, const CommOp& op) override;
  bool Progress() override;
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
