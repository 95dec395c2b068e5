#include "multidevice/comm/ucx/shared_op.h"

#include <sched.h>

#include <cstring>
#include <vector>

#include "csrc/base/text.h"
#include "multidevice/comm/reduce.h"
#include "multidevice/comm/ucx/ucx_op.h"

namespace hir::comm {

void SharedOp::Reset(const CommOp& op) {
  op_ = &op;
  put_ = over_ = false;
  next_ = 0;
}

void SharedOp::Dispose() {
  if (!over_) transport_.Unwatch(*this);
  transport_.TakeBack(*this);
}

SharedSlots& SharedOp::slots() const { return *static_cast<const UcxTeam&>(*op_->team).slots; }

void SharedOp::Begin() {
  slots().SetCore(sched_getcpu());
  Look();
  if (!over_) transport_.Watch(*this);
}

base::Found SharedOp::Look() {
  bool happened = false;
  if (!put_ && slots().Admits(number())) {
    Put();
    happened = true;
  }
  if (put_) happened |= Take();
  if (next_ == info().size()) Finish();
  if (happened) return base::Found::kSomething;
  return NeedsCore() ? base::Found::kNeedsCore : base::Found::kNothing;
}

// With more ranks than cores: looking on would keep it from what is looked for.
bool SharedOp::NeedsCore() const {
  const int core = sched_getcpu();
  if (!put_) {
    const int64_t holder = slots().WhoHolds(number());
    return holder != info().index && slots().Core(holder) == core;
  }
  const Chunks chunks(desc(), info(), transport_.rank());
  for (int64_t peer = next_; peer < info().size(); ++peer) {
    if (peer != info().index && slots().Core(peer) == core && chunks.Receives(peer) &&
        slots().Get(peer, number()).data == nullptr) {
      return true;
    }
  }
  return false;
}

// What others are to get is away before anything is written into dst, which may be src.
void SharedOp::Put() {
  const Chunks chunks(desc(), info(), transport_.rank());
  if (chunks.SendsAway()) {
    slots().Put(number(), desc().src.data, chunks.SrcBytes());
    WakeSleepers();
  }
  put_ = true;
  if (!Reduces(desc().type) && chunks.Receives(info().index))
    Copy(info().index, desc().src.data + chunks.SrcOffset(info().index));
}

bool SharedOp::Take() {
  const Chunks chunks(desc(), info(), transport_.rank());
  const int64_t before = next_;
  for (; next_ < info().size(); ++next_) {
    if (next_ == info().index || !chunks.Receives(next_)) continue;
    const SharedSlots::Contribution from = slots().Get(next_, number());
    if (from.data == nullptr) break;
    if (from.bytes != chunks.SrcBytes()) {
      engine_.Poison(InvalidArgument(base::Cat(CommName(desc()), ": rank ", info().ranks[static_cast<size_t>(next_)],
                                               ": a message of ", from.bytes, " bytes came where ", chunks.SrcBytes(),
                                               " were expected")));
      break;
    }
    if (!Reduces(desc().type)) Copy(next_, from.data + chunks.SrcOffset(info().index));
  }
  return next_ > before;
}

void SharedOp::Copy(int64_t peer, const std::byte* chunk) const {
  const Chunks chunks(desc(), info(), transport_.rank());
  std::byte* const dst = desc().dst.data + chunks.DstOffset(peer);
  if (dst != chunk) std::memcpy(dst, chunk, static_cast<size_t>(chunks.bytes()));
}

// In the order of the team, every part from where its rank has put it.
void SharedOp::Add() const {
  const Chunks chunks(desc(), info(), transport_.rank());
  const int64_t me = info().index;
  std::vector<const std::byte*>& srcs = transport_.addresses();
  srcs.clear();
  for (int64_t peer = 0; peer < info().size(); ++peer) {
    const std::byte* const src = peer == me ? desc().src.data : slots().Get(peer, number()).data;
    srcs.push_back(src + chunks.SrcOffset(me));
  }
  Reduce(desc().reduce, desc().dtype, srcs, desc().dst.data, desc().count);
}

void SharedOp::Finish() {
  if (Reduces(desc().type) && Chunks(desc(), info(), transport_.rank()).Receives(info().index)) {
    Add();
  }
  slots().Finish(number());
  WakeSleepers();
  over_ = true;
}

void SharedOp::WakeSleepers() const {
  for (int64_t peer = 0; peer < info().size(); ++peer) {
    if (peer != info().index && slots().IsAsleep(peer))
      transport_.worker().Ring(info().ranks[static_cast<size_t>(peer)]);
  }
}

std::string SharedOp::WhatIsMissing(base::Nanos waited) const {
  if (!put_) {
    const int64_t holder = slots().WhoHolds(number());
    return Missing({info().ranks[static_cast<size_t>(holder)]}, "not finished what came 8 communications before",
                   desc(), transport_.rank(), waited);
  }
  const Chunks chunks(desc(), info(), transport_.rank());
  std::vector<int64_t> ranks;
  for (int64_t peer = next_; peer < info().size(); ++peer) {
    if (peer != info().index && chunks.Receives(peer) && slots().Get(peer, number()).data == nullptr) {
      ranks.push_back(info().ranks[static_cast<size_t>(peer)]);
    }
  }
  return Missing(ranks, "not sent anything for", desc(), transport_.rank(), waited);
}

}  // namespace hir::comm
