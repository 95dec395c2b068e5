// What sets of ops of one graph read and write. Not thread-safe; the graph must not change.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/segment/segment.h"

namespace hir::segment {

class Groups {
 public:
  explicit Groups(const ir::Graph& graph);

  // In program order. An op is known by its position among them.
  const std::vector<ir::Op*>& ops() const { return ops_; }
  int PositionOf(const ir::Op* op) const { return position_.at(op); }
  // Positions of the ops that read `value`, ascending.
  const std::vector<int>& ReadersOf(const ir::Value* value) const { return readers_[static_cast<size_t>(value->id)]; }
  // The group of the ops at `positions`, which ascend. Linear in their operands and in the readers of their results.
  Group Of(std::span<const int> positions);

 private:
  bool IsInside(int position) const { return inside_[static_cast<size_t>(position)] == call_; }

  std::vector<ir::Op*> ops_;
  std::unordered_map<const ir::Op*, int> position_;  // Lookup only.
  // By the number of a value.
  std::vector<int> definer_;  // A position; -1: a parameter.
  std::vector<std::vector<int>> readers_;
  std::vector<char> is_returned_;
  // The last call of Of that has seen a value among its inputs, and an op among its ops.
  std::vector<int> seen_;
  std::vector<int> inside_;
  int call_ = 0;
};

}  // namespace hir::segment
