// What steps cost: bytes, memory, and the time that a simple model gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "multidevice/sharding.h"

namespace hir::plan {

struct Step;

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();

struct AxisSize {
  int64_t extent = 1;
  bool is_known = true;     // Else `extent` is an estimate: blocks are even, or, with may_be_uneven, may not be.
  bool is_at_hand = false;  // Of that, it is no guess: what holds for it may become a guard of the plan.
  bool may_be_uneven = false;
  bool is_stored_once = false;  // One element in memory, whatever the extent.
};

struct TensorSize {
  std::vector<AxisSize> axes;
  int64_t element_bytes = 1;

  // Of known extents.
  static TensorSize Of(const std::vector<int64_t>& extents, int64_t element_bytes);
  // Whether `ways` blocks of `axis` are alike for every size that a plan may meet.
  bool IsEven(size_t axis, int64_t ways) const;
  // Whether `axis` is, for the sizes at hand, that of so many even blocks.
  bool IsEvenNow(size_t axis, int64_t ways) const;
  // Whether an axis that is dealt `ways` ways becomes as many blocks, or the other way round, by one exchange: each
  // rank's part must be made of whole turns, too. Of symbolic extents a plan may say so; then it is a guard.
  bool DealsDirectly(size_t axis, int64_t ways) const;
  // What one rank stores under `sharding`; blocks are of equal size, the last ones padded.
  double PartBytes(const mesh::Sharding& sharding) const;
};

// Between nodes: each has one link, over which all that it sends others goes.
struct Links {
  struct Node {
    double message_seconds = 0;
    double bytes_per_second = 0;
    bool operator==(const Node&) const = default;
  };
  std::vector<int64_t> node_of = {};  // By device, in [0, of_node.size()). Empty: all are on one node.
  std::vector<Node> of_node = {};

  int64_t NodeOf(int64_t device) const;
  // How many nodes `devices` are on.
  int64_t CountNodes(std::span<const int64_t> devices) const;
  bool operator==(const Links&) const = default;
};

// A step takes `communication_seconds` if it communicates (`local_seconds` else), the bytes that its busiest rank sends
// or receives divided by `bytes_per_second`, and what is packed, unpacked or copied by `copied_bytes_per_second`.
// The defaults are of the order of one node's ranks; only their ratios decide: a communication costs as much as
// sending 512 KiB. What goes between nodes takes the time of the slowest link of a node in the step besides.
struct CostModel {
  double communication_seconds = 10e-6;
  double local_seconds = 1e-7;
  double bytes_per_second = 50e9;
  double copied_bytes_per_second = 1e12;
  Links links = {};
};

struct StepCost {
  double seconds = 0;
  double bytes = 0;
  double peak_bytes = 0;
  double node_bytes = 0;  // Over the link of the busiest node.
};
// The cost of `step`, taken where the tensor lies as `before`.
StepCost CostOf(const Step& step, const mesh::Sharding& before, const TensorSize& size, const CostModel& model);

}  // namespace hir::plan
