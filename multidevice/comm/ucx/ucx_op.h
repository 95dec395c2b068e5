// UcxTransport: algorithms over UCX messages. UcxOp: one communication's messages in flight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/comm/engine/engine.h"
#include "multidevice/comm/ucx/algorithm.h"
#include "multidevice/comm/ucx/shared_op.h"
#include "multidevice/comm/ucx/ucx_team.h"
#include "multidevice/comm/ucx/ucx_worker.h"

namespace hir::comm {

// "ranks 1, 2 have not sent anything for allgather #17; rank 0 waiting 5.0 s"
std::string Missing(const std::vector<int64_t>& ranks, std::string_view what, const CommDesc& desc, int64_t rank,
                    base::Nanos waited);

class UcxTransport final : public Transport {
 public:
  UcxTransport(int64_t rank, int64_t generation, std::unique_ptr<UcxWorker> worker)
      : rank_(rank), generation_(generation), worker_(std::move(worker)) {}

  PendingPtr Make(Engine& engine, const CommOp& op) override;
  base::Found Progress() override;
  bool Arm() override;
  void Disarm() override;
  int fd() const override { return worker_->fd(); }
  base::Nanos sleep_max() const override { return std::chrono::milliseconds(2); }  // For deadlines.
  void Close(base::Nanos timeout) override { worker_->Close(timeout); }

  int64_t rank() const { return rank_; }
  int64_t generation() const { return generation_; }
  UcxWorker& worker() { return *worker_; }

  // What waits for what others put into shared memory, until it is over; where it goes then.
  void Watch(SharedOp& op) { watched_.push_back(&op); }
  void Unwatch(SharedOp& op) { std::erase(watched_, &op); }
  void TakeBack(SharedOp& op) { spare_ops_.emplace_back(&op); }
  // Room for the addresses of what is added.
  std::vector<const std::byte*>& addresses() { return addresses_; }
  int64_t& messages_pending() { return messages_pending_; }

 private:
  base::Found LookAtShared();

  const int64_t rank_;
  const int64_t generation_;
  std::vector<SharedOp*> watched_;
  std::vector<std::unique_ptr<SharedOp>> spare_ops_;
  std::vector<const std::byte*> addresses_;
  std::vector<SharedSlots*> armed_;  // Of the teams that have been told that this rank sleeps.
  int64_t messages_pending_ = 0;
  unsigned looks_ = 0;
  const std::unique_ptr<UcxWorker> worker_;
};

class UcxOp final : public PendingComm, private Wire {
 public:
  UcxOp(Engine& engine, UcxTransport& transport, const CommOp& op);
  ~UcxOp() override;

  void Begin() override;
  void Advance() override;  // Tells the algorithm what is done since.
  bool over() const override { return pending_ == 0 && done_.empty(); }
  void Cancel() override;  // Of receives; Over follows.
  bool receiving() const override;
  bool idle() const override { return pending_ == 0; }
  std::string WhatIsMissing(base::Nanos waited) const override;

 private:
  class Message final : public UcxRequest {
   public:
    Message(UcxOp& op, const Transfer& transfer) : op_(op), transfer_(transfer) {}
    void Over(Status status) override { op_.OnOver(*this, std::move(status)); }
    const Transfer& transfer() const { return transfer_; }
    bool pending = true;

   private:
    UcxOp& op_;
    const Transfer transfer_;
  };
  void Send(const Transfer& transfer, const std::byte* data, int64_t bytes) override;
  void Recv(const Transfer& transfer, std::byte* data, int64_t bytes) override;
  std::byte* Scratch(int64_t bytes) override;
  void OnOver(Message& message, Status status);
  uint64_t TagOf(const Transfer& transfer) const;

  const UcxTeam& team() const { return static_cast<const UcxTeam&>(*op_.team); }

  Engine& engine_;
  UcxTransport& transport_;
  const CommOp& op_;
  // What follows allocates from here: a short communication takes no other memory.
  alignas(std::max_align_t) std::array<std::byte, 688> buffer_;
  std::pmr::monotonic_buffer_resource memory_{buffer_.data(), buffer_.size()};
  std::unique_ptr<Algorithm> algorithm_;         // Null when there is nothing to move.
  std::pmr::deque<Message> messages_{&memory_};  // Grows only: UCX has their addresses.
  int64_t pending_ = 0;
  std::pmr::vector<Transfer> done_{&memory_};  // Not told to the algorithm yet.
  std::pmr::vector<ScratchMemory> scratch_{&memory_};
};

}  // namespace hir::comm
