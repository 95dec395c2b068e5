// An allgather of a team on several nodes: each chunk goes to another node once, and is passed on there.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "multidevice/comm/ucx/algorithm.h"
#include "multidevice/comm/ucx/chunks.h"

namespace hir::comm {
namespace {

// Beyond the messages to other nodes, which the links carry: more would compete for the same memory.
constexpr size_t kSlotsInFlight = 4;

// A rank that is the k-th of its node is heard, at another one, by the k-th there, around. Phase 0 is a rank's own
// chunk; phase 1 one of another node that is passed on: its segment is whose.
class TwoLevelGather final : public Algorithm {
 public:
  TwoLevelGather(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of, int64_t rank)
      : desc_(desc), me_(team.index), node_of_(node_of), chunks_(desc, team, rank) {
    const auto size = static_cast<size_t>(team.size());
    std::vector<int64_t> members(size, 0);  // By node.
    std::vector<int64_t> place(size, 0);    // In its node, by place in the team.
    for (size_t i = 0; i < size; ++i) place[i] = members[static_cast<size_t>(node_of[i])]++;
    hearer_.resize(size);
    for (size_t peer = 0; peer < size; ++peer) {
      // Whether this rank hears `peer`, and whether `peer` hears this one.
      const auto hears = [&](size_t at, size_t from) {
        return place[from] % members[static_cast<size_t>(node_of[at])] == place[at];
      };
      if (IsNear(static_cast<int64_t>(peer))) {
        if (static_cast<int64_t>(peer) != me_) near_.push_back(static_cast<int64_t>(peer));
        continue;
      }
      const auto mine = static_cast<size_t>(me_);
      if (hears(peer, mine)) far_.push_back(static_cast<int64_t>(peer));
      const int64_t index = place[peer] % members[static_cast<size_t>(node_of[mine])];
      for (size_t i = 0; i < size; ++i) {
        if (node_of[i] == node_of[mine] && place[i] == index) hearer_[peer] = static_cast<int64_t>(i);
      }
    }
  }

  void Begin(Wire& wire) override {
    for (int64_t peer = 0; peer < std::ssize(node_of_); ++peer) {
      if (peer == me_) continue;
      const int64_t hearer = IsNear(peer) ? me_ : hearer_[static_cast<size_t>(peer)];
      if (hearer == me_) {
        wire.Recv({.peer = peer}, Chunk(peer), chunks_.bytes());
      } else {
        wire.Recv({.peer = hearer, .phase = 1, .segment = peer, .of = peer}, Chunk(peer), chunks_.bytes());
      }
    }
    for (const int64_t peer : far_) wire.Send({.is_send = true, .peer = peer}, desc_.src.data, chunks_.bytes());
    for (const int64_t peer : near_) waiting_.push_back({.is_send = true, .peer = peer});
    for (size_t i = 0; i < kSlotsInFlight; ++i) SendNext(wire);
    if (Chunk(me_) != desc_.src.data) std::memmove(Chunk(me_), desc_.src.data, static_cast<size_t>(chunks_.bytes()));
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    if (transfer.is_send) {
      if (!IsNear(transfer.peer)) return;
      --in_flight_;
      return SendNext(wire);
    }
    if (transfer.phase == 1 || IsNear(transfer.peer)) return;
    for (const int64_t peer : near_)
      waiting_.push_back({.is_send = true, .peer = peer, .phase = 1, .segment = transfer.peer});
    for (size_t i = 0; i < kSlotsInFlight; ++i) SendNext(wire);
  }

 private:
  bool IsNear(int64_t peer) const { return node_of_[static_cast<size_t>(peer)] == node_of_[static_cast<size_t>(me_)]; }
  std::byte* Chunk(int64_t peer) const { return desc_.dst.data + chunks_.DstOffset(peer); }
  void SendNext(Wire& wire) {
    if (waiting_.empty() || in_flight_ == kSlotsInFlight) return;
    const Transfer next = waiting_.front();
    waiting_.pop_front();
    ++in_flight_;
    wire.Send(next, next.phase == 0 ? desc_.src.data : Chunk(next.segment), chunks_.bytes());
  }

  const CommDesc& desc_;
  const int64_t me_;
  const std::span<const int64_t> node_of_;
  const Chunks chunks_;
  std::vector<int64_t> near_, far_;  // Whom it sends to, here and on other nodes.
  std::vector<int64_t> hearer_;      // Of this node, by place: of those on others.
  std::deque<Transfer> waiting_;     // Sends.
  size_t in_flight_ = 0;             // Of near_.
};

}  // namespace

std::unique_ptr<Algorithm> MakeTwoLevelGather(const CommDesc& desc, const TeamInfo& team,
                                              std::span<const int64_t> node_of, int64_t rank) {
  return std::make_unique<TwoLevelGather>(desc, team, node_of, rank);
}

}  // namespace hir::comm
