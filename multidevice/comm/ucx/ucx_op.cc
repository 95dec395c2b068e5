#include "multidevice/comm/ucx/ucx_op.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/tag.h"

namespace hir::comm {
namespace {

constexpr unsigned kLooksPerIdleProgress = 16;

}  // namespace

PendingPtr UcxTransport::Make(Engine& engine, const CommOp& op) {
  if (op.numbers.channel == kByMessages) return PendingPtr(new UcxOp(engine, *this, op));
  if (spare_ops_.empty()) spare_ops_.push_back(std::make_unique<SharedOp>(engine, *this));
  std::unique_ptr<SharedOp> shared = std::move(spare_ops_.back());
  spare_ops_.pop_back();
  shared->Reset(op);
  return PendingPtr(shared.release());
}

base::Found UcxTransport::Progress() {
  const base::Found found = LookAtShared();
  // Messages that nobody waits for are short, or have yet to be received: looking for them can wait.
  if (messages_pending_ == 0 && looks_++ % kLooksPerIdleProgress != 0) return found;
  return worker_->Progress() ? base::Found::kSomething : found;
}

base::Found UcxTransport::LookAtShared() {
  base::Found found = base::Found::kNothing;
  for (size_t i = watched_.size(); i-- > 0;) {
    SharedOp& op = *watched_[i];
    found = std::max(found, op.Look());
    if (op.over()) watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return found;
}

bool UcxTransport::Arm() {
  for (SharedOp* op : watched_) {
    op->slots().SetAsleep(true);
    armed_.push_back(&op->slots());
  }
  looks_ = 0;  // What keeps the worker from being armed is looked at next.
  return LookAtShared() != base::Found::kSomething && worker_->Arm();
}

void UcxTransport::Disarm() {
  for (SharedSlots* slots : armed_) slots->SetAsleep(false);
  armed_.clear();
}

UcxOp::UcxOp(Engine& engine, UcxTransport& transport, const CommOp& op)
    : engine_(engine), transport_(transport), op_(op) {
  if (op.desc.count > 0) algorithm_ = MakeAlgorithm(op_.desc, *op_.team->info, team().node_of, transport.rank());
}

UcxOp::~UcxOp() {
  for (ScratchMemory& scratch : scratch_) engine_.GiveScratch(std::move(scratch));
}

void UcxOp::Begin() {
  if (algorithm_ != nullptr) algorithm_->Begin(*this);
}

void UcxOp::Advance() {
  // What the algorithm does now may be done at once, and is then appended.
  for (size_t i = 0; i < done_.size(); ++i) {
    const Transfer transfer = done_[i];
    algorithm_->Done(*this, transfer);
  }
  done_.clear();
}

std::string Missing(const std::vector<int64_t>& ranks, std::string_view what, const CommDesc& desc, int64_t rank,
                    base::Nanos waited) {
  char time[32];
  std::snprintf(time, sizeof time, "%.1f s", std::chrono::duration<double>(waited).count());
  return base::Cat(ranks.size() == 1 ? "rank " : "ranks ", base::Join(ranks, ", "),
                   ranks.size() == 1 ? " has " : " have ", what, " ", CommName(desc), "; rank ", rank, " waiting ",
                   time);
}

uint64_t UcxOp::TagOf(const Transfer& transfer) const {
  const bool pair = op_.desc.type == CommType::kSendRecv;
  const auto peer = static_cast<size_t>(transfer.peer);
  const MatchNumbers& numbers = op_.numbers;
  return Tag{.generation = transport_.generation(),
             .team = transfer.is_send ? team().number_at[peer] : team().number,
             .pair = pair,
             .sender = transfer.is_send ? transport_.rank() : op_.team->info->ranks[peer],
             .number = pair ? (transfer.is_send ? numbers.send : numbers.recv) : numbers.collective,
             .phase = transfer.phase,
             .segment = transfer.segment}
      .Bits();
}

void UcxOp::Send(const Transfer& transfer, const std::byte* data, int64_t bytes) {
  ++pending_;
  ++transport_.messages_pending();
  const int64_t peer = op_.team->info->ranks[static_cast<size_t>(transfer.peer)];
  transport_.worker().Send(peer, TagOf(transfer), data, bytes, messages_.emplace_back(*this, transfer));
}

void UcxOp::Recv(const Transfer& transfer, std::byte* data, int64_t bytes) {
  ++pending_;
  ++transport_.messages_pending();
  transport_.worker().Recv(TagOf(transfer), data, bytes, messages_.emplace_back(*this, transfer));
}

std::byte* UcxOp::Scratch(int64_t bytes) {
  scratch_.push_back(engine_.TakeScratch(bytes));
  return scratch_.back().data;
}

void UcxOp::OnOver(Message& message, Status status) {
  message.pending = false;
  --pending_;
  --transport_.messages_pending();
  if (!status.ok()) {
    // A cancelled message belongs to an engine that has failed already.
    const auto peer = static_cast<size_t>(message.transfer().peer);
    engine_.Poison(status.WithContext(base::Cat(CommName(op_.desc), ": rank ", op_.team->info->ranks[peer])));
    return;
  }
  if (done_.empty()) engine_.Changed(*this);
  done_.push_back(message.transfer());
}

void UcxOp::Cancel() {
  for (Message& message : messages_) {
    if (message.pending && !message.transfer().is_send) transport_.worker().Cancel(message);
  }
}

bool UcxOp::receiving() const {
  return std::any_of(messages_.begin(), messages_.end(),
                     [](const Message& message) { return message.pending && !message.transfer().is_send; });
}

std::string UcxOp::WhatIsMissing(base::Nanos waited) const {
  // In a later phase everybody may wait for the one that is stuck in an earlier one.
  std::set<std::pair<int, int64_t>> receives;
  std::set<std::pair<int, int64_t>> sends;
  for (const Message& message : messages_) {
    if (!message.pending) continue;
    const Transfer& transfer = message.transfer();
    const int64_t rank = op_.team->info->ranks[static_cast<size_t>(transfer.of >= 0 ? transfer.of : transfer.peer)];
    (message.transfer().is_send ? sends : receives).insert({message.transfer().phase, rank});
  }
  const auto& missing = receives.empty() ? sends : receives;
  std::vector<int64_t> ranks;
  for (const auto& [phase, rank] : missing) {
    if (phase == missing.begin()->first) ranks.push_back(rank);
  }
  return Missing(ranks, receives.empty() ? "not taken part in" : "not sent anything for", op_.desc, transport_.rank(),
                 waited);
}

}  // namespace hir::comm
