// What a set of ops reads and writes, as seen from outside.
#include <algorithm>
#include <unordered_set>

#include "csrc/base/checked.h"
#include "csrc/segment/segment.h"

namespace hir::segment {
namespace {

bool IsRead(const ir::Value* value, const std::vector<std::vector<ir::Op*>>& uses,
            const std::unordered_set<const ir::Op*>& inside) {
  for (const ir::Op* user : uses[static_cast<size_t>(value->id)]) {
    if (!inside.contains(user)) return true;
  }
  return false;
}

}  // namespace

Group MakeGroup(const ir::Graph& graph, const std::vector<std::vector<ir::Op*>>& uses,
                std::vector<ir::Op*> ops) {
  Group group{.ops = std::move(ops), .inputs = {}, .outputs = {}};
  const std::unordered_set<const ir::Op*> inside(group.ops.begin(),
                                                 group.ops.end());  // Membership only.
  std::unordered_set<const ir::Value*> seen;
  for (const ir::Op* op : group.ops) {
    for (ir::Value* operand : op->operands) {
      const bool outside = operand->def == nullptr || !inside.contains(operand->def);
      if (outside && seen.insert(operand).second) group.inputs.push_back(operand);
    }
  }
  for (const ir::Op* op : group.ops) {
    for (ir::Value* result : op->results) {
      const bool returned =
          std::any_of(graph.outputs.begin(), graph.outputs.end(),
                      [&](const ir::Output& output) { return output.value == result; });
      if (returned || IsRead(result, uses, inside)) group.outputs.push_back(result);
    }
  }
  return group;
}

Group MakeGroup(const ir::Graph& graph, std::vector<ir::Op*> ops) {
  const std::unordered_set<const ir::Op*> wanted(ops.begin(), ops.end());
  std::vector<ir::Op*> ordered;
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    if (wanted.contains(op)) ordered.push_back(op);
  }
  return MakeGroup(graph, ir::UsesOf(graph), std::move(ordered));
}

int64_t StorageBytes(const ir::Value& value) {
  if (value.type->kind != ir::TypeKind::kTensor) return 0;
  int64_t bytes = DTypeBytes(value.type->dtype);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind != ir::AxisKind::kIteration) continue;
    const auto extent = ir::Evaluate(axis.extent, [](std::string_view) { return kUnknownExtent; });
    bytes = base::CheckedMul(bytes, extent.ok() ? std::max<int64_t>(*extent, 0) : kUnknownExtent)
                .value_or(INT64_MAX);
  }
  return bytes;
}

}  // namespace hir::segment
