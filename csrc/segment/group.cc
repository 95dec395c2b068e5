// What a set of ops reads and writes, as seen from outside.
#include "csrc/segment/group.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/fusion/axes.h"

namespace hir::segment {

Groups::Groups(const ir::Graph& graph)
    : definer_(graph.values().size(), -1),
      readers_(graph.values().size()),
      is_returned_(graph.values().size()),
      seen_(graph.values().size()) {
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    const auto position = static_cast<int>(ops_.size());
    ops_.push_back(op);
    position_[op] = position;
    for (const ir::Value* result : op->results) definer_[static_cast<size_t>(result->id)] = position;
    for (const ir::Value* operand : op->operands) {
      std::vector<int>& readers = readers_[static_cast<size_t>(operand->id)];
      if (readers.empty() || readers.back() != position) readers.push_back(position);
    }
  });
  for (const ir::Output& output : graph.outputs) is_returned_[static_cast<size_t>(output.value->id)] = 1;
  inside_.resize(ops_.size());
}

Group Groups::Of(std::span<const int> positions) {
  ++call_;
  Group group;
  group.ops.reserve(positions.size());
  for (const int position : positions) {
    inside_[static_cast<size_t>(position)] = call_;
    group.ops.push_back(ops_[static_cast<size_t>(position)]);
  }
  for (const ir::Op* op : group.ops) {
    for (ir::Value* operand : op->operands) {
      const auto id = static_cast<size_t>(operand->id);
      if (seen_[id] == call_ || (definer_[id] >= 0 && IsInside(definer_[id]))) continue;
      seen_[id] = call_;
      group.inputs.push_back(operand);
    }
  }
  for (const ir::Op* op : group.ops) {
    for (ir::Value* result : op->results) {
      const auto is_outside = [&](int reader) { return !IsInside(reader); };
      if (is_returned_[static_cast<size_t>(result->id)] != 0 || std::ranges::any_of(ReadersOf(result), is_outside))
        group.outputs.push_back(result);
    }
  }
  return group;
}

Group MakeGroup(const ir::Graph& graph, std::vector<ir::Op*> ops) {
  Groups groups(graph);
  std::vector<int> positions;
  for (const ir::Op* op : ops) positions.push_back(groups.PositionOf(op));
  std::ranges::sort(positions);
  return groups.Of(positions);
}

bool IsSlice(const ir::Op& op) {
  const auto links = fusion::AxesOf(op);
  return op.operands.size() == 1 && std::ranges::any_of(links, [](const fusion::AxisLink& link) {
           return link.relation == fusion::AxisRelation::kSliced;
         });
}

int64_t StorageBytes(const ir::Value& value, const Sizes& sizes) {
  if (value.type->kind != ir::TypeKind::kTensor) return 0;
  int64_t bytes = DTypeBytes(value.type->dtype);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind != ir::AxisKind::kIteration) continue;
    const auto extent = ir::Evaluate(axis.extent, [&sizes](std::string_view symbol) {
      const auto found = sizes.find(std::string(symbol));
      return found == sizes.end() ? kUnknownExtent : found->second;
    });
    const int64_t times = extent.ok() ? std::max<int64_t>(*extent, 0) : kUnknownExtent;
    bytes = std::min(base::CheckedMul(bytes, times).value_or(kStorageBytesMax), kStorageBytesMax);
  }
  return bytes;
}

}  // namespace hir::segment
