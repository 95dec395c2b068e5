// Deallocates every alloc after the last op that uses it or a view of it, in the alloc's block; an
// alloc that has a dealloc keeps it.
//
// Before: %b = alloc   launch(%a, %b)   %v = view_slice(%b)   for { set(%v, %y) }   launch(%y, %z)
// After:  %b = alloc   launch(%a, %b)   %v = view_slice(%b)   for { set(%v, %y) }   dealloc(%b)   launch(%y, %z)
//
// Right because the op after which it stands is the last, in the block that runs the alloc, that
// reaches the memory; a block nested deeper is over by then, with all its iterations. Work still
// queued on streams is no matter: who reuses bytes looks at the order of the work
// (host_ir/pool_plan.h), not at the place of the dealloc.
#include "host_ir/passes/deallocate.h"

#include <unordered_map>

#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"

namespace hir::host {
namespace {

// The op of `block` that is `op` or has it inside.
ir::Op* Lifted(ir::Op* op, const ir::Block* block) {
  while (op->parent != block) op = op->parent->owner;
  return op;
}

}  // namespace

Status Deallocate(ir::Graph& graph) {
  std::vector<ir::Op*> allocs;
  std::unordered_map<const ir::Value*, ir::Op*> last;  // In program order, so the latest stays.
  std::unordered_map<const ir::Value*, bool> has_dealloc;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kAlloc) {
      allocs.push_back(op);
      last[op->results[0]] = op;
    }
    for (const ir::Value* operand : op->operands) {
      const ir::Value* base = BaseOf(operand);
      if (base->def == nullptr || CodeOf(*base->def) != HostOp::kAlloc) continue;
      last[base] = Lifted(op, base->def->parent);
      has_dealloc[base] |= CodeOf(*op) == HostOp::kDealloc;
    }
  });
  for (auto alloc = allocs.rbegin(); alloc != allocs.rend(); ++alloc) {  // Of one last use: in order of the allocs.
    ir::Value* memory = (*alloc)->results[0];
    if (has_dealloc[memory]) continue;
    ir::Op* const after = last.at(memory);
    ir::Builder(graph, *after->parent, after->next).Make("dealloc", {memory});
  }
  return {};
}

}  // namespace hir::host
