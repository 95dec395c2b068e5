// Broadcast down a binomial tree: the rank at distance d from the root (in team order, around) gets
// its bytes from the one at distance d without its lowest bit, and passes each segment on as soon
// as it has it.
#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/base/checked.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/algorithm.h"

namespace hir::comm {
namespace {

constexpr int64_t kSegmentBytes = 512 * 1024;

class Broadcast final : public Algorithm {
 public:
  Broadcast(const CommDesc& desc, const TeamInfo& team)
      : desc_(desc),
        bytes_(ChunkBytes(desc)),
        segment_bytes_(std::max(kSegmentBytes, base::CeilDiv(bytes_, kSegmentsMax))),
        segments_(base::CeilDiv(bytes_, segment_bytes_)) {
    const int64_t n = team.size();
    const int64_t root = team.IndexOf(desc.root).value();
    const int64_t distance = (team.index - root + n) % n;
    const auto at = [&](int64_t d) { return (root + d) % n; };
    is_root_ = distance == 0;
    parent_ = at(distance & (distance - 1));
    // Children: distance plus each power of two below the lowest bit of distance. The farthest
    // subtree first.
    const int64_t lowest = is_root_ ? n : distance & -distance;
    for (int64_t bit = 1; bit < lowest && distance + bit < n; bit *= 2)
      children_.push_back(at(distance + bit));
    std::reverse(children_.begin(), children_.end());
  }

  void Begin(Wire& wire) override {
    for (int64_t k = 0; k < segments_; ++k) {
      if (is_root_) {
        PassOn(wire, k);
      } else {
        wire.Recv({.peer = parent_, .segment = k}, desc_.dst.data + k * segment_bytes_,
                  BytesOfSegment(k));
      }
    }
    if (is_root_ && desc_.dst.data != desc_.src.data) {
      std::memcpy(desc_.dst.data, desc_.src.data, static_cast<size_t>(bytes_));
    }
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    if (!transfer.is_send) PassOn(wire, transfer.segment);
  }

 private:
  int64_t BytesOfSegment(int64_t k) const {
    return std::min(segment_bytes_, bytes_ - k * segment_bytes_);
  }
  void PassOn(Wire& wire, int64_t k) {
    const std::byte* const from = is_root_ ? desc_.src.data : desc_.dst.data;
    for (int64_t child : children_) {
      wire.Send({.is_send = true, .peer = child, .segment = k}, from + k * segment_bytes_,
                BytesOfSegment(k));
    }
  }

  const CommDesc& desc_;
  const int64_t bytes_;
  const int64_t segment_bytes_;
  const int64_t segments_;
  bool is_root_ = false;
  int64_t parent_ = 0;
  std::vector<int64_t> children_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeBroadcast(const CommDesc& desc, const TeamInfo& team) {
  return std::make_unique<Broadcast>(desc, team);
}

}  // namespace hir::comm
