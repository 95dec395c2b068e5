// UcxOp: one communication in progress: its algorithm and its messages. The engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "multidevice/comm/ucx/algorithm.h"
#include "multidevice/comm/ucx/engine.h"
#include "multidevice/comm/ucx/ucx_worker.h"

namespace hir::comm {

class UcxOp final : public Wire {
 public:
  UcxOp(Engine& engine, UcxPost& post, const UcxOpDesc& desc, base::Nanos deadline);
  ~UcxOp() override;

  void Begin();
  void TellDone();  // Tells the algorithm what is done since.
  bool over() const { return pending_ == 0 && done_.empty(); }

  void Cancel();           // Of receives; Over follows.
  bool receiving() const;  // Whether UCX may still write into our memory.
  bool idle() const { return pending_ == 0; }
  // "rank 2 has not sent its part of allgather #17; rank 0 waiting 5.0 s"
  std::string WhatIsMissing(base::Nanos waited) const;

  void Send(const Transfer& transfer, const std::byte* data, int64_t bytes) override;
  void Recv(const Transfer& transfer, std::byte* data, int64_t bytes) override;
  std::byte* Scratch(int64_t bytes) override;

  UcxPost& post() { return post_; }
  const CommDesc& desc() const { return desc_.desc; }
  base::Nanos deadline() const { return deadline_; }

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
  void OnOver(Message& message, Status status);
  uint64_t TagOf(const Transfer& transfer) const;

  Engine& engine_;
  UcxPost& post_;
  const UcxOpDesc desc_;
  const base::Nanos deadline_;
  std::unique_ptr<Algorithm> algorithm_;  // Null when there is nothing to move.
  std::deque<Message> messages_;          // Grows only: UCX has their addresses.
  int64_t pending_ = 0;
  std::vector<Transfer> done_;  // Not told to the algorithm yet.
  std::vector<ScratchMemory> scratch_;
};

}  // namespace hir::comm
