// Broadcast in segments, each of which is passed on as soon as it is here.
//
// Short: down a binomial tree. The rank at distance d from the root (in team order, around) gets its bytes from the one
// at distance d without its lowest bit.
//
// Long: the root deals the segments out, and whoever gets one sends it to all others. So the root sends every byte
// once, where a tree has it send them ceil(log2 n) times, and all ranks send at the same time.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "csrc/base/checked.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/algorithm.h"

namespace hir::comm {
namespace {

constexpr int64_t kTreeSegmentBytes = 512 * 1024;
constexpr int64_t kDealtSegmentBytes = 128 * 1024;

class Broadcast : public Algorithm {
 public:
  Broadcast(const CommDesc& desc, const TeamInfo& team, int64_t segment_bytes)
      : desc_(desc),
        n_(team.size()),
        bytes_(ChunkBytes(desc)),
        segment_bytes_(std::max(segment_bytes, base::CeilDiv(bytes_, kSegmentsMax))),
        segments_(base::CeilDiv(bytes_, segment_bytes_)),
        root_(team.IndexOf(desc.root).value()),
        distance_((team.index - root_ + n_) % n_) {}

  void Begin(Wire& wire) override {
    for (int64_t k = 0; k < segments_; ++k) {
      if (is_root()) {
        PassOn(wire, k);
      } else {
        wire.Recv({.peer = At(ParentOf(k)), .segment = k}, desc_.dst.data + k * segment_bytes_, BytesOfSegment(k));
      }
    }
    if (is_root() && desc_.dst.data != desc_.src.data) {
      std::memcpy(desc_.dst.data, desc_.src.data, static_cast<size_t>(bytes_));
    }
  }

  void Done(Wire& wire, const Transfer& transfer) override {
    if (!transfer.is_send) PassOn(wire, transfer.segment);
  }

 protected:
  // Ranks by their distance from the root: from whom segment `k` comes, and who gets it from here.
  virtual int64_t ParentOf(int64_t k) const = 0;
  virtual const std::vector<int64_t>& ChildrenOf(int64_t k) = 0;

  bool is_root() const { return distance_ == 0; }
  int64_t distance() const { return distance_; }
  int64_t size() const { return n_; }

 private:
  int64_t At(int64_t distance) const { return (root_ + distance) % n_; }
  int64_t BytesOfSegment(int64_t k) const { return std::min(segment_bytes_, bytes_ - k * segment_bytes_); }
  void PassOn(Wire& wire, int64_t k) {
    const std::byte* const from = is_root() ? desc_.src.data : desc_.dst.data;
    for (const int64_t child : ChildrenOf(k)) {
      wire.Send({.is_send = true, .peer = At(child), .segment = k}, from + k * segment_bytes_, BytesOfSegment(k));
    }
  }

  const CommDesc& desc_;
  const int64_t n_;
  const int64_t bytes_;
  const int64_t segment_bytes_;
  const int64_t segments_;
  const int64_t root_;
  const int64_t distance_;
};

class Tree final : public Broadcast {
 public:
  Tree(const CommDesc& desc, const TeamInfo& team) : Broadcast(desc, team, kTreeSegmentBytes) {
    // Distance plus each power of two below its lowest bit; the farthest subtree first.
    const int64_t lowest = is_root() ? size() : distance() & -distance();
    for (int64_t bit = 1; bit < lowest && distance() + bit < size(); bit *= 2) children_.push_back(distance() + bit);
    std::reverse(children_.begin(), children_.end());
  }

 private:
  int64_t ParentOf(int64_t) const override { return distance() & (distance() - 1); }
  const std::vector<int64_t>& ChildrenOf(int64_t) override { return children_; }

  std::vector<int64_t> children_;
};

class Dealt final : public Broadcast {
 public:
  Dealt(const CommDesc& desc, const TeamInfo& team) : Broadcast(desc, team, kDealtSegmentBytes) {
    for (int64_t step = 1; step < size(); ++step) {
      const int64_t other = (distance() + step) % size();
      if (other != 0) others_.push_back(other);
    }
  }

 private:
  int64_t OwnerOf(int64_t k) const { return 1 + k % (size() - 1); }
  int64_t ParentOf(int64_t k) const override { return OwnerOf(k) == distance() ? 0 : OwnerOf(k); }
  const std::vector<int64_t>& ChildrenOf(int64_t k) override {
    if (!is_root()) return OwnerOf(k) == distance() ? others_ : none_;
    owner_ = {OwnerOf(k)};
    return owner_;
  }

  std::vector<int64_t> others_;  // Neither the root nor this rank.
  std::vector<int64_t> owner_;
  const std::vector<int64_t> none_;
};

// Ranks by nodes: the first of each, from the root around, gets a segment from a node's first, and its others within.
class NodeTree final : public Broadcast {
 public:
  NodeTree(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of)
      : Broadcast(desc, team, kTreeSegmentBytes) {
    const int64_t root = *team.IndexOf(desc.root);
    std::vector<int64_t> order;                 // Nodes, as they are met.
    std::vector<std::vector<int64_t>> members;  // Of these, distances.
    for (int64_t at = 0; at < size(); ++at) {
      const int64_t node = node_of[static_cast<size_t>((root + at) % size())];
      const auto found = std::ranges::find(order, node);
      if (found == order.end()) {
        order.push_back(node);
        members.push_back({at});
      } else {
        members[static_cast<size_t>(found - order.begin())].push_back(at);
      }
    }
    std::vector<int64_t> firsts;
    for (const std::vector<int64_t>& of_node : members) firsts.push_back(of_node.front());
    Join(firsts);  // Before those within: they go farther.
    for (const std::vector<int64_t>& of_node : members) Join(of_node);
  }

 private:
  // A binomial tree over these, as of Tree, from the first on.
  void Join(const std::vector<int64_t>& all) {
    const int64_t place = std::ranges::find(all, distance()) - all.begin();
    const int64_t count = std::ssize(all);
    if (place == count) return;
    if (place > 0) parent_ = all[static_cast<size_t>(place & (place - 1))];
    std::vector<int64_t> children;
    const int64_t lowest = place == 0 ? count : place & -place;
    for (int64_t bit = 1; bit < lowest && place + bit < count; bit *= 2)
      children.push_back(all[static_cast<size_t>(place + bit)]);
    children_.insert(children_.end(), children.rbegin(), children.rend());
  }
  int64_t ParentOf(int64_t) const override { return parent_; }
  const std::vector<int64_t>& ChildrenOf(int64_t) override { return children_; }

  int64_t parent_ = 0;
  std::vector<int64_t> children_;
};

}  // namespace

std::unique_ptr<Algorithm> MakeBroadcast(const CommDesc& desc, const TeamInfo& team, std::span<const int64_t> node_of) {
  if (!node_of.empty()) return std::make_unique<NodeTree>(desc, team, node_of);
  // With two ranks they send the same; with one nothing.
  if (team.size() > 2 && ChunkBytes(desc) > kBroadcastTreeBytesMax) return std::make_unique<Dealt>(desc, team);
  return std::make_unique<Tree>(desc, team);
}

}  // namespace hir::comm
