// reduce_scatter, allreduce and reduce: the owner of a part of the vector gets everybody's
// contribution to it, segment by segment, adds them in the order of the team, and sends each
// finished segment to all (allreduce) or to the root (reduce).
//
// A short one is one round instead of two: in an allreduce every rank owns everything, in a reduce
// the root does.
//
// In place this is safe: where a finished segment arrives, the rank's own contribution has been
// read before, because its owner could not finish the segment without it. Only a short allreduce
// writes where it still sends from: it waits for its sends first.
#include <algorithm>
#include <array>
#include <span>

#include "csrc/base/checked.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/reduce.h"
#include "multidevice/comm/ucx/algorithm.h"

namespace hir::comm {
namespace {

constexpr int64_t kShortBytes = 32 * 1024;     // Up to here one round does.
constexpr int64_t kSegmentBytes = 128 * 1024;  // All ranks' segments in flight fit the second-level cache.
constexpr int64_t kSegmentsInFlight = 3;
enum Phase { kContribution = 0, kFinished = 1 };

class Reduction final : public Algorithm {
 public:
  Reduction(const CommDesc& desc, const TeamInfo& team)
      : desc_(desc),
        n_(team.size()),
        me_(team.index),
        element_(DTypeBytes(desc.dtype)),
        root_(desc.type == CommType::kReduce ? team.IndexOf(desc.root).value() : -1),
        scatter_(desc.type == CommType::kReduceScatter),
        short_(!scatter_ && (ChunkBytes(desc) <= kShortBytes || desc.count < n_)) {
    const int64_t largest = scatter_ || short_ ? desc.count : base::CeilDiv(desc.count, n_);
    segment_ = short_ ? desc.count : std::max(kSegmentBytes / element_, base::CeilDiv(largest, kSegmentsMax));
    in_flight_ = std::min(kSegmentsInFlight, Segments(me_));
  }

  void Begin(Wire& wire) override {
    if (n_ == 1) return Reduce(desc_.reduce, desc_.dtype, std::array{Src(0)}, desc_.dst.data, desc_.count);
    const int64_t slot = std::min(segment_, Length(me_)) * element_;
    slot_bytes_ = base::CeilDiv(slot, 64) * 64;
    if (in_flight_ > 0) {
      const int64_t slots_bytes = slot_bytes_ * in_flight_ * n_;
      const auto num_srcs = static_cast<size_t>(n_);
      scratch_ = wire.Scratch(slots_bytes + n_ * static_cast<int64_t>(sizeof(const std::byte*)));
      srcs_ = {reinterpret_cast<const std::byte**>(scratch_ + slots_bytes), num_srcs};
    }
    for (int64_t k = 0; k < in_flight_; ++k) RecvContributions(wire, k);
    for (int64_t step = 1; step < n_ && GetsFinished(me_); ++step) {
      const int64_t peer = (me_ + step) % n_;
      for (int64_t k = 0; k < Segments(peer); ++k) {
        wire.Recv({.peer = peer, .phase = kFinished, .segment = k}, desc_.dst.data + Offset(peer, k), Bytes(peer, k));
      }
    }
    // Segment by segment over the peers, so that all owners can start.
    for (int64_t k = 0; k < kSegmentsMax; ++k) {
      bool any = false;
      for (int64_t step = 1; step < n_; ++step) {
        const int64_t peer = (me_ + step) % n_;
        if (k >= Segments(peer)) continue;
        any = true;
        ++unsent_;
        wire.Send({.is_send = true, .peer = peer, .phase = kContribution, .segment = k}, Src(Offset(peer, k)),
                  Bytes(peer, k));
      }
      if (!any) break;
    }
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    if (transfer.phase == kFinished) {
      if (!transfer.is_send || !FinishesInSlot()) return;
      leaving_[static_cast<size_t>(transfer.segment % in_flight_)] = false;
      if (transfer.segment + in_flight_ < Segments(me_)) Finish(wire, transfer.segment + in_flight_);
      return;
    }
    if (transfer.is_send) {
      --unsent_;
      if (short_ && in_flight_ > 0) Finish(wire, 0);
      return;
    }
    ++arrived_[static_cast<size_t>(transfer.segment % in_flight_)];
    Finish(wire, transfer.segment);
  }

 private:
  // Whether the rank at place `index` is sent what others finish.
  bool GetsFinished(int64_t index) const { return !scatter_ && !short_ && (root_ < 0 || root_ == index); }
  // What is finished here is the root's; until it is sent it stays in this rank's slot.
  bool FinishesInSlot() const { return root_ >= 0 && root_ != me_; }

  // The part of the vector that `owner` reduces: its first element, and how many.
  int64_t First(int64_t owner) const {
    if (short_) return 0;
    return scatter_ ? owner * desc_.count : owner * (desc_.count / n_) + std::min(owner, desc_.count % n_);
  }
  int64_t Length(int64_t owner) const {
    if (short_ && root_ >= 0) return owner == root_ ? desc_.count : 0;
    if (short_ || scatter_) return desc_.count;
    return desc_.count / n_ + (owner < desc_.count % n_ ? 1 : 0);
  }
  int64_t Segments(int64_t owner) const { return base::CeilDiv(Length(owner), segment_); }
  int64_t Count(int64_t owner, int64_t k) const { return std::min(segment_, Length(owner) - k * segment_); }
  int64_t Bytes(int64_t owner, int64_t k) const { return Count(owner, k) * element_; }
  int64_t Offset(int64_t owner, int64_t k) const { return (First(owner) + k * segment_) * element_; }
  const std::byte* Src(int64_t offset) const { return desc_.src.data + offset; }
  std::byte* Slot(int64_t k, int64_t peer) const { return scratch_ + ((k % in_flight_) * n_ + peer) * slot_bytes_; }

  // Where segment `k` of this rank's part is added up.
  std::byte* Destination(int64_t k) const {
    if (FinishesInSlot()) return Slot(k, me_);
    return desc_.dst.data + (scatter_ ? k * segment_ * element_ : Offset(me_, k));
  }

  void RecvContributions(Wire& wire, int64_t k) {
    arrived_[static_cast<size_t>(k % in_flight_)] = 0;
    for (int64_t step = 1; step < n_; ++step) {
      const int64_t peer = (me_ + n_ - step) % n_;
      wire.Recv({.peer = peer, .phase = kContribution, .segment = k}, Slot(k, peer), Bytes(me_, k));
    }
  }

  // Adds up segment `k` of this rank's part, if all of it is here.
  void Finish(Wire& wire, int64_t k) {
    const auto slot = static_cast<size_t>(k % in_flight_);
    if (arrived_[slot] < n_ - 1 || leaving_[slot] || (short_ && unsent_ > 0)) return;
    for (int64_t j = 0; j < n_; ++j) srcs_[static_cast<size_t>(j)] = j == me_ ? Src(Offset(me_, k)) : Slot(k, j);
    std::byte* const dst = Destination(k);
    Reduce(desc_.reduce, desc_.dtype, srcs_, dst, Count(me_, k));
    leaving_[slot] = FinishesInSlot();
    for (int64_t step = 1; step < n_; ++step) {
      const int64_t peer = (me_ + step) % n_;
      if (!GetsFinished(peer)) continue;
      wire.Send({.is_send = true, .peer = peer, .phase = kFinished, .segment = k}, dst, Bytes(me_, k));
    }
    if (k + in_flight_ < Segments(me_)) RecvContributions(wire, k + in_flight_);
  }

  const CommDesc& desc_;
  const int64_t n_;
  const int64_t me_;
  const int64_t element_;  // Bytes.
  const int64_t root_;     // Place of the root of a reduce, else -1.
  const bool scatter_;
  const bool short_;
  int64_t segment_ = 0;    // Elements.
  int64_t in_flight_ = 0;  // Segments of contributions that are received at a time.
  int64_t slot_bytes_ = 0;
  std::byte* scratch_ = nullptr;
  int64_t unsent_ = 0;  // Contributions whose sends are pending.
  // Of each segment in flight: contributions; whether its slot holds a finished segment that is being sent.
  std::array<int64_t, kSegmentsInFlight> arrived_ = {};
  std::array<bool, kSegmentsInFlight> leaving_ = {};
  std::span<const std::byte*> srcs_;  // In scratch_, behind the slots.
};

}  // namespace

std::unique_ptr<Algorithm> MakeReduction(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of) {
  const int64_t nodes = EqualNodes(node_of);
  if (nodes > 0 && desc.type == CommType::kAllreduce && ChunkBytes(desc) > kShortBytes && desc.count >= team.size())
    return MakeTwoLevelReduction(desc, team, nodes);
  return std::make_unique<Reduction>(desc, team);
}

}  // namespace hir::comm
