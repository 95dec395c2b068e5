// Drops ops whose results nothing reads.
//
// Before: %a = exp(%x)  %b = neg(%a)  %c = sin(%x)  return %c
// After:  %c = sin(%x)  return %c
//
// From the last op to the first, so that an op is looked at after all its readers. Ops with an effect stay; one library
// call less is no effect.
#include "csrc/fusion/passes/dce.h"

#include <algorithm>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::fusion {

Status Dce(ir::Graph& graph) {
  std::vector<int> reads(graph.values().size());
  const auto reads_of = [&](const ir::Value* value) -> int& { return reads[static_cast<size_t>(value->id)]; };
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    for (const ir::Value* operand : op->operands) ++reads_of(operand);
  });
  for (const ir::Output& output : graph.outputs) ++reads_of(output.value);
  for (ir::Op* op = graph.body.last; op != nullptr;) {
    ir::Op* const before = op->prev;
    const bool pure = (op->info->effects & ~static_cast<uint32_t>(ir::kLibrary)) == 0;
    if (pure && std::ranges::all_of(op->results, [&](const ir::Value* v) { return reads_of(v) == 0; })) {
      for (const ir::Value* operand : op->operands) --reads_of(operand);
      graph.body.Erase(op);
    }
    op = before;
  }
  return {};
}

}  // namespace hir::fusion
