// SharedOp: one communication of a team through memory that its ranks share. Each rank puts its contribution into a
// slot of its own, and reads those that it needs from the others'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "multidevice/comm/engine/engine.h"
#include "multidevice/comm/ucx/chunks.h"
#include "multidevice/comm/ucx/shared_slots.h"

namespace hir::comm {

class UcxTransport;
struct UcxTeam;

// Made once, and started again for one communication after the other. Over shared memory nothing is ever received
// behind our back: what was given up leaves no address anywhere.
class SharedOp final : public PendingComm {
 public:
  SharedOp(Engine& engine, UcxTransport& transport) : engine_(engine), transport_(transport) {}

  // For `op`, which outlives the communication.
  void Reset(const CommOp& op);
  void Dispose() override;

  void Begin() override;
  void Advance() override {}
  bool over() const override { return over_; }
  void Cancel() override {}
  bool receiving() const override { return false; }
  bool idle() const override { return true; }
  std::string WhatIsMissing(base::Nanos waited) const override;

  base::Found Look();  // Does what can be done by now.
  SharedSlots& slots() const;

 private:
  const CommDesc& desc() const { return op_->desc; }
  const TeamInfo& info() const { return *op_->team->info; }
  int64_t number() const { return op_->numbers.collective; }

  void Put();
  // Whether a member that has yet to put or finish something was last seen on the core of this thread.
  bool NeedsCore() const;
  bool Take();  // What the others have put since; whether there was anything.
  void Copy(int64_t peer, const std::byte* chunk) const;
  void Add() const;
  void Finish();
  void WakeSleepers() const;

  Engine& engine_;
  UcxTransport& transport_;
  const CommOp* op_ = nullptr;
  bool put_ = false;
  bool over_ = false;
  int64_t next_ = 0;  // All peers before it have what is needed of them in their slots.
};

}  // namespace hir::comm
