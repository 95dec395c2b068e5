#include "multidevice/comm/local/exchange.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/local/local_result.h"

namespace hir::comm {
namespace {

using base::Cat;

// What the edges of one communication have in common.
std::string EdgePrefix(const LocalOp& op) {
  const bool pair = op.desc.type == CommType::kSendRecv;
  return Cat(op.team->ToString(), " lane ", op.team->lane, pair ? " pair " : Cat(" collective ", op.numbers.collective),
             ":");
}

std::string EdgeKey(const LocalOp& op, int64_t from, int64_t to, int64_t rank) {
  const bool pair = op.desc.type == CommType::kSendRecv;
  const int64_t number = from == rank ? op.numbers.send : op.numbers.recv;
  return Cat(EdgePrefix(op), from, ">", to, pair ? Cat("#", number) : "");
}

std::string Describe(const CommDesc& desc) {
  std::string text = Cat(CommName(desc), " (", desc.count, " ", DTypeName(desc.dtype));
  if (Reduces(desc.type)) base::Append(text, ", ", ReduceOpName(desc.reduce));
  if (IsRooted(desc.type)) base::Append(text, ", root ", desc.root);
  return text + ")";
}

bool Matches(const CommDesc& a, const CommDesc& b) {
  return a.type == b.type && a.count == b.count && a.dtype == b.dtype && a.root == b.root &&
         (a.reduce == b.reduce || !Reduces(a.type));
}

std::string Seconds(base::Nanos time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

void LocalPost::Start(device::Completion completion) { exchange_.Enter(*this, std::move(completion)); }
void LocalPost::Skip(const Status& cause) { exchange_.Skip(*this, cause); }

Exchange::Exchange(const WorldOptions& options, Scheduler& scheduler)
    : options_(options), scheduler_(scheduler), ranks_(static_cast<size_t>(options.size)) {}

Status Exchange::Failure(int64_t rank) const {
  std::lock_guard lock(mutex_);
  return ranks_[static_cast<size_t>(rank)].failure;
}

CommProgress Exchange::Progress(int64_t rank) const {
  std::lock_guard lock(mutex_);
  return ranks_[static_cast<size_t>(rank)].progress;
}

bool Exchange::IsOver(const LocalPost& post) const {
  std::lock_guard lock(mutex_);
  return post.over_;
}

void Exchange::Enter(LocalPost& post, device::Completion completion) {
  std::lock_guard lock(mutex_);
  post.completion_ = std::move(completion);
  Rank& rank = At(post.rank());
  rank.entered.push_back(&post);
  for (LocalOp& op : post.ops) {
    if (rank.failure.ok() && Dies(post.rank(), op.desc.seq)) return;
  }
  if (!rank.failure.ok()) return EndPost(post, rank.failure);
  for (LocalOp& op : post.ops) {
    scheduler_.Trace(Cat("rank ", post.rank(), " enters ", CommName(op.desc)));
    rank.progress.entered = op.desc.seq;
    PoisonResult(op, post.rank());
    EnterOp(post, op);
    if (post.over_) return;  // The ranks did not match.
  }
  for (LocalOp& op : post.ops) LeaveIfDone(post, op);
}

void Exchange::EnterOp(LocalPost& post, LocalOp& op) {
  const int64_t rank = post.rank();
  op.arrived.resize(static_cast<size_t>(op.team->size()));
  SetDeadline(post, op);
  if (HasHalves(op.desc.type)) {
    if (op.desc.to != kNoRank && op.desc.to != rank) AddEdge(post, op, rank, op.desc.to);
    if (op.desc.from != kNoRank && op.desc.from != rank) AddEdge(post, op, op.desc.from, rank);
    return;
  }
  const auto sends = [&](int64_t from, int64_t to) {
    switch (op.desc.type) {
      case CommType::kGather:
      case CommType::kReduce: return to == op.desc.root;
      case CommType::kScatter:
      case CommType::kBroadcast: return from == op.desc.root;
      case CommType::kAllgather:
      case CommType::kAllreduce:
      case CommType::kReduceScatter:
      case CommType::kAllToAll:
      case CommType::kSendRecv:
      case CommType::kCollectivePermute: break;
    }
    return true;
  };
  for (int64_t peer : op.team->ranks) {
    if (peer == rank) continue;
    if (sends(rank, peer)) AddEdge(post, op, rank, peer);
    if (sends(peer, rank)) AddEdge(post, op, peer, rank);
  }
}

void Exchange::AddEdge(LocalPost& post, LocalOp& op, int64_t from, int64_t to) {
  if (post.over_) return;
  ++op.pending;
  const std::string key = EdgeKey(op, from, to, post.rank());
  Edge& edge = edges_[key];
  edge.from = from;
  edge.to = to;
  (from == post.rank() ? edge.sender : edge.receiver) = {.post = &post, .op = &op};
  if (edge.sender.op == nullptr || edge.receiver.op == nullptr) return;
  if (!Matches(edge.sender.op->desc, edge.receiver.op->desc)) {
    PoisonAll(InvalidArgument(Cat("rank ", from, " posted ", Describe(edge.sender.op->desc), " where rank ", to,
                                  " posted ", Describe(edge.receiver.op->desc), " in team ", op.team->ToString())));
    return;
  }
  Send(key, edge);
}

void Exchange::Send(const std::string& key, const Edge& edge) {
  const int64_t seq = edge.sender.op->desc.seq;
  const auto applies = [&](const auto& fault) {
    return (fault.from == kAnyRank || fault.from == edge.from) && (fault.to == kAnyRank || fault.to == edge.to) &&
           (fault.seq == kAnySeq || fault.seq == seq);
  };
  std::string name = Cat("message ", edge.from, " -> ", edge.to, " of ", CommName(edge.sender.op->desc));
  if (std::any_of(options_.losses.begin(), options_.losses.end(), applies)) {
    scheduler_.Trace(name + " is lost");
    return;
  }
  base::Nanos delay = {};
  for (const MessageDelay& fault : options_.delays) {
    if (applies(fault)) delay += fault.time;
  }
  if (options_.random_delay_max.count() > 0)
    delay += base::Nanos(scheduler_.Draw(options_.random_delay_max.count() + 1));
  auto arrive = [this, key, name] { scheduler_.Ready(name, [this, key] { Deliver(key); }); };
  if (delay.count() == 0) return arrive();
  scheduler_.At(scheduler_.Now() + delay, std::move(arrive));
}

void Exchange::Deliver(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto at = edges_.find(key);
  // One end failed meanwhile.
  if (at == edges_.end() || at->second.sender.op == nullptr || at->second.receiver.op == nullptr) return;
  const Edge edge = at->second;
  edges_.erase(at);
  const TeamInfo& team = *edge.sender.op->team;
  const std::byte* const bytes = Outgoing(*edge.sender.op, team.IndexOf(edge.to).value());
  edge.receiver.op->arrived[static_cast<size_t>(team.IndexOf(edge.from).value())].assign(
      bytes, bytes + ChunkBytes(edge.sender.op->desc));
  --edge.sender.op->pending;
  --edge.receiver.op->pending;
  LeaveIfDone(*edge.sender.post, *edge.sender.op);
  LeaveIfDone(*edge.receiver.post, *edge.receiver.op);
}

void Exchange::LeaveIfDone(LocalPost& post, LocalOp& op) {
  if (op.pending > 0 || op.left) return;
  op.left = true;
  WriteResult(op, post.rank());
  scheduler_.Trace(Cat("rank ", post.rank(), " leaves ", CommName(op.desc)));
  At(post.rank()).progress.left = op.desc.seq;
  const bool all = std::all_of(post.ops.begin(), post.ops.end(), [](const LocalOp& other) { return other.left; });
  if (all) EndPost(post, {});
}

void Exchange::EndPost(LocalPost& post, const Status& status) {
  HIR_CHECK(!post.over_);
  post.over_ = true;
  std::erase(At(post.rank()).entered, &post);
  post.completion_.Done(status);
}

void Exchange::Skip(LocalPost& post, const Status& cause) {
  std::lock_guard lock(mutex_);
  post.over_ = true;
  PoisonLocked(post.rank(), cause);
}

void Exchange::Poison(int64_t rank, const Status& cause) {
  std::lock_guard lock(mutex_);
  PoisonLocked(rank, cause);
}

void Exchange::PoisonLocked(int64_t rank, const Status& cause) {
  if (!At(rank).failure.ok()) return;
  At(rank).failure = cause;
  scheduler_.Trace(Cat("rank ", rank, " fails: ", cause.ToString()));
  for (auto& [key, edge] : edges_) {
    if (edge.from == rank) edge.sender = {};
    if (edge.to == rank) edge.receiver = {};
  }
  const std::vector<LocalPost*> entered = At(rank).entered;
  for (LocalPost* post : entered) EndPost(*post, cause);
}

void Exchange::PoisonAll(const Status& cause) {
  for (int64_t rank = 0; rank < options_.size; ++rank) PoisonLocked(rank, cause);
}

bool Exchange::Dies(int64_t rank, int64_t seq) {
  for (const RankDeath& death : options_.deaths) {
    if (death.rank != rank || seq < death.seq) continue;
    const Status cause = Unavailable(Cat("rank ", rank, " died"));
    PoisonLocked(rank, cause);
    if (death.noticed_after) {
      scheduler_.At(scheduler_.Now() + *death.noticed_after, [this, cause] {
        std::lock_guard lock(mutex_);
        PoisonAll(cause);
      });
    }
    return true;
  }
  return false;
}

void Exchange::SetDeadline(const LocalPost& post, const LocalOp& op) {
  scheduler_.At(scheduler_.Now() + options_.op_timeout,
                [this, rank = post.rank(), prefix = EdgePrefix(op), name = CommName(op.desc), seq = op.desc.seq] {
                  std::lock_guard lock(mutex_);
                  if (!At(rank).failure.ok()) return;
                  for (const LocalPost* pending : At(rank).entered) {
                    for (const LocalOp& other : pending->ops) {
                      if (other.left || other.desc.seq != seq || EdgePrefix(other) != prefix) continue;
                      PoisonAll(DeadlineError(prefix, name));
                      return;
                    }
                  }
                });
}

// Of the ranks that an entered one waits for: which have not entered? If none: whose message is
// missing?
Status Exchange::DeadlineError(const std::string& prefix, const std::string& name) const {
  std::set<int64_t> missing;
  std::set<int64_t> waiting;
  std::string lost;
  for (auto at = edges_.lower_bound(prefix); at != edges_.end() && at->first.starts_with(prefix); ++at) {
    const Edge& edge = at->second;
    if (edge.sender.op == nullptr && edge.receiver.op != nullptr) missing.insert(edge.from), waiting.insert(edge.to);
    if (edge.receiver.op == nullptr && edge.sender.op != nullptr) missing.insert(edge.to), waiting.insert(edge.from);
    if (edge.sender.op != nullptr && edge.receiver.op != nullptr && lost.empty()) {
      lost = Cat("the message from rank ", edge.from, " to rank ", edge.to, " has not arrived");
    }
  }
  const std::string time = Seconds(options_.op_timeout);
  if (missing.empty()) return {Code::kDeadlineExceeded, Cat(name, ": ", lost, " after ", time)};
  return {Code::kDeadlineExceeded, Cat(missing.size() == 1 ? "rank " : "ranks ", base::Join(missing, ", "),
                                       missing.size() == 1 ? " has" : " have", " not entered ", name, "; ",
                                       waiting.size(), waiting.size() == 1 ? " peer" : " peers", " waiting ", time)};
}

}  // namespace hir::comm
