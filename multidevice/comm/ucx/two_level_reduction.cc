// An allreduce of a team on several nodes, in the order of the team: what one node has added up goes on to the next,
// and the last one's sums come back. So each byte goes to a node once and leaves it once, and the result is the same as
// on one node, bit by bit: no element is added in another order.
//
// The k-th rank of every node has the k-th part of the vector, its lane. Segment by segment it gets what the others of
// its node contribute, adds them to what came from the node before, and passes that on; what is finished it passes
// back, and to the others of its node.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/checked.h"
#include "multidevice/comm/reduce.h"
#include "multidevice/comm/ucx/algorithm.h"

namespace hir::comm {
namespace {

constexpr int64_t kNodeSegmentBytes = 128 * 1024;
constexpr int64_t kNodeSegmentsInFlight = 4;  // Segments that are added up at a time, or on their way to the next node.
enum NodePhase { kAddedSoFar = 0, kNodeFinished = 1 };  // What others of the node contribute, too, is of phase 0.

class TwoLevelReduction final : public Algorithm {
 public:
  TwoLevelReduction(const CommDesc& desc, const TeamInfo& team, int64_t nodes)
      : desc_(desc),
        n_(team.size()),
        r_(n_ / nodes),
        node_(team.index / r_),
        lane_(team.index % r_),
        is_last_(node_ == nodes - 1),
        element_(DTypeBytes(desc.dtype)),
        accumulator_(AccumulatorBytes(desc.dtype)) {
    segment_ = std::max(kNodeSegmentBytes / element_, base::CeilDiv(base::CeilDiv(desc.count, r_), kSegmentsMax));
  }

  void Begin(Wire& wire) override {
    const int64_t slot = std::min(segment_, Length(lane_)) * std::max(element_, accumulator_);
    slot_bytes_ = base::CeilDiv(slot, 64) * 64;
    in_flight_ = std::min(kNodeSegmentsInFlight, Segments(lane_));
    if (in_flight_ > 0) scratch_ = wire.Scratch(slot_bytes_ * in_flight_ * NumSlots());
    for (int64_t k = 0; k < in_flight_; ++k) RecvParts(wire, k);
    for (int64_t lane = 0; lane < r_; ++lane) {
      // Its own lane comes from the next node, unless it finishes there itself; others' from their ranks here.
      if (lane == lane_ && is_last_) continue;
      const int64_t from = lane == lane_ ? At(node_ + 1, lane) : At(node_, lane);
      for (int64_t k = 0; k < Segments(lane); ++k)
        wire.Recv({.peer = from, .phase = kNodeFinished, .segment = k}, Dst(lane, k), Bytes(lane, k));
    }
    for (int64_t k = 0; k < kSegmentsMax; ++k) {
      bool any = false;
      for (int64_t step = 1; step < r_; ++step) {
        const int64_t lane = (lane_ + step) % r_;
        if (k >= Segments(lane)) continue;
        any = true;
        wire.Send({.is_send = true, .peer = At(node_, lane), .phase = kAddedSoFar, .segment = k}, Src(lane, k),
                  Bytes(lane, k));
      }
      if (!any) break;
    }
    for (int64_t k = 0; k < in_flight_; ++k) Add(wire, k);  // Where it has its node for itself, and is first.
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    const auto slot = static_cast<size_t>(transfer.segment % std::max<int64_t>(in_flight_, 1));
    if (transfer.is_send) {
      if (transfer.phase != kAddedSoFar || transfer.peer / r_ == node_) return;
      leaving_[slot] = false;  // What went on to the next node.
      if (transfer.segment + in_flight_ < Segments(lane_)) Add(wire, transfer.segment + in_flight_);
      return;
    }
    if (transfer.phase == kNodeFinished) {
      if (transfer.peer / r_ != node_) PassBack(wire, transfer.segment);
      return;
    }
    ++arrived_[slot];
    Add(wire, transfer.segment);
  }

 private:
  int64_t At(int64_t node, int64_t lane) const { return node * r_ + lane; }
  int64_t First(int64_t lane) const { return lane * (desc_.count / r_) + std::min(lane, desc_.count % r_); }
  int64_t Length(int64_t lane) const { return desc_.count / r_ + (lane < desc_.count % r_ ? 1 : 0); }
  int64_t Segments(int64_t lane) const { return base::CeilDiv(Length(lane), segment_); }
  int64_t Count(int64_t lane, int64_t k) const { return std::min(segment_, Length(lane) - k * segment_); }
  int64_t Bytes(int64_t lane, int64_t k) const { return Count(lane, k) * element_; }
  int64_t Offset(int64_t lane, int64_t k) const { return (First(lane) + k * segment_) * element_; }
  const std::byte* Src(int64_t lane, int64_t k) const { return desc_.src.data + Offset(lane, k); }
  std::byte* Dst(int64_t lane, int64_t k) const { return desc_.dst.data + Offset(lane, k); }
  // A segment has one for each rank of the node, for what came from the node before, for what goes on to the next.
  int64_t NumSlots() const { return r_ + 2; }
  std::byte* Slot(int64_t k, int64_t which) const {
    return scratch_ + ((k % in_flight_) * NumSlots() + which) * slot_bytes_;
  }

  void RecvParts(Wire& wire, int64_t k) {
    arrived_[static_cast<size_t>(k % in_flight_)] = 0;
    if (node_ > 0)
      wire.Recv({.peer = At(node_ - 1, lane_), .phase = kAddedSoFar, .segment = k}, Slot(k, r_),
                Count(lane_, k) * accumulator_);
    for (int64_t step = 1; step < r_; ++step) {
      const int64_t lane = (lane_ + step) % r_;
      wire.Recv({.peer = At(node_, lane), .phase = kAddedSoFar, .segment = k}, Slot(k, lane), Bytes(lane_, k));
    }
  }

  // Adds up segment `k` of this rank's lane, if all of it is here and the one before has left its slot.
  void Add(Wire& wire, int64_t k) {
    const auto slot = static_cast<size_t>(k % in_flight_);
    if (arrived_[slot] < r_ - 1 + (node_ > 0 ? 1 : 0) || leaving_[slot] || k < next_in_[slot]) return;
    srcs_.clear();
    for (int64_t lane = 0; lane < r_; ++lane) srcs_.push_back(lane == lane_ ? Src(lane_, k) : Slot(k, lane));
    std::byte* const sum = is_last_ ? Dst(lane_, k) : Slot(k, r_ + 1);
    Reduce(desc_.reduce, desc_.dtype, {.before = node_ > 0 ? Slot(k, r_) : nullptr, .total = is_last_ ? n_ : 0}, srcs_,
           sum, Count(lane_, k));
    next_in_[slot] = k + in_flight_;
    if (is_last_) {
      PassBack(wire, k);
    } else {
      leaving_[slot] = true;
      wire.Send({.is_send = true, .peer = At(node_ + 1, lane_), .phase = kAddedSoFar, .segment = k}, sum,
                Count(lane_, k) * accumulator_);
    }
    if (k + in_flight_ < Segments(lane_)) RecvParts(wire, k + in_flight_);
  }

  // Sends on a finished segment of this rank's lane.
  void PassBack(Wire& wire, int64_t k) {
    if (node_ > 0)
      wire.Send({.is_send = true, .peer = At(node_ - 1, lane_), .phase = kNodeFinished, .segment = k}, Dst(lane_, k),
                Bytes(lane_, k));
    for (int64_t step = 1; step < r_; ++step) {
      const int64_t lane = (lane_ + step) % r_;
      wire.Send({.is_send = true, .peer = At(node_, lane), .phase = kNodeFinished, .segment = k}, Dst(lane_, k),
                Bytes(lane_, k));
    }
  }

  const CommDesc& desc_;
  const int64_t n_;
  const int64_t r_;  // Ranks of a node.
  const int64_t node_;
  const int64_t lane_;
  const bool is_last_;
  const int64_t element_;  // Bytes, as the next.
  const int64_t accumulator_;
  int64_t segment_ = 0;  // Elements.
  int64_t in_flight_ = 0;
  int64_t slot_bytes_ = 0;
  std::byte* scratch_ = nullptr;
  // By segment in flight: parts that are here; whether its sums are on their way to the next node; the segment
  // that is next in its slots.
  std::array<int64_t, kNodeSegmentsInFlight> arrived_ = {};
  std::array<bool, kNodeSegmentsInFlight> leaving_ = {};
  std::array<int64_t, kNodeSegmentsInFlight> next_in_ = {};
  std::vector<const std::byte*> srcs_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeTwoLevelReduction(const CommDesc& desc, const TeamInfo& team, int64_t nodes) {
  return std::make_unique<TwoLevelReduction>(desc, team, nodes);
}

int64_t EqualNodes(std::span<const int64_t> node_of) {
  if (node_of.empty()) return 0;
  const int64_t nodes = *std::ranges::max_element(node_of) + 1;
  const auto size = std::ssize(node_of);
  if (size % nodes != 0 || size == nodes) return 0;
  for (int64_t place = 0; place < size; ++place) {
    if (node_of[static_cast<size_t>(place)] != place / (size / nodes)) return 0;
  }
  return nodes;
}

}  // namespace hir::comm
