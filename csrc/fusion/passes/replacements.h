// Values that stand in for others, while a pass goes through a graph once in order.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "csrc/ir/graph.h"

namespace hir::fusion {

// Whether `value` takes over an input's memory: it lies as that does, whatever lies otherwise and has its elements.
inline bool TakesOver(const ir::Graph& graph, const ir::Value* value) {
  return std::ranges::any_of(
      graph.outputs, [&](const ir::Output& output) { return output.value == value && output.alias != nullptr; });
}

class Replacements {
 public:
  // REQUIRES: `by` is not replaced itself.
  void Replace(const ir::Value* value, ir::Value* by) { by_.emplace(value, by); }
  // Has the op read what stands in for its operands.
  void Apply(ir::Op& op) const {
    for (ir::Value*& operand : op.operands) operand = Of(operand);
  }
  // The same for the results of the graph: once all of it is seen.
  void ApplyToOutputs(ir::Graph& graph) const {
    for (ir::Output& output : graph.outputs) output.value = Of(output.value);
  }

 private:
  ir::Value* Of(ir::Value* value) const {
    const auto found = by_.find(value);
    return found == by_.end() ? value : found->second;
  }
  std::unordered_map<const ir::Value*, ir::Value*> by_;  // Lookups only.
};

}  // namespace hir::fusion
