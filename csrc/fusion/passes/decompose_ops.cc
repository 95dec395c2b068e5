// Puts the ops that composite ops are made of in their places.
//
// Before: %y: f32[i0] = mean(%x: f32[i0, 8]) {axes=[1], keepdim=false}
// After:  %y.sum: f32[i0, r:8] = sum(%x) {axes=[1], keepdim=false, dtype=null}
//         %y.count: i64 = extent() {value=8}
//         %y: f32[i0] = truediv(%y.sum, %y.count)
//
// The last op takes over name and layout. It comes before all other passes: they, sharding and code generation need no
// axes, schedule or code for a composite op, and sizes are still those of the whole tensors.
#include "csrc/fusion/passes/decompose_ops.h"

#include <set>

#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/decompose.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/fusion/passes/replacements.h"

namespace hir::fusion {

namespace {

// Puts what `decompose` makes of an op in the place of each op that `is_made_of_others`.
Status DecomposeEach(ir::Graph& graph, bool (*is_made_of_others)(const ir::Op&),
                     ir::Value* (*decompose)(ir::Builder&, const ir::Op&)) {
  Replacements replaced;
  for (ir::Op* op = graph.body.first; op != nullptr;) {
    ir::Op* const next = op->next;
    replaced.Apply(*op);
    if (is_made_of_others(*op)) {
      ir::Value& before = *op->results[0];
      ir::Builder builder(graph, graph.body, op);
      ir::Op* const last = op->prev;
      ir::Value* now = decompose(builder, *op);
      if (!ir::Equal(*now->type, *before.type)) {
        // A declared type may say an extent in other words, which a guard holds equal, or that one element is stored.
        const ir::Type* declared[] = {before.type};
        const auto copy = builder.Add({.name = "set", .operands = {&now, 1}, .declared = declared});
        if (copy.ok()) now = (*copy)->results[0];
      }
      for (ir::Op* made = op->prev; made != last; made = made->prev) {
        HIR_CHECK(!IsComposite(CodeOf(*made)));
        made->location = op->location;
      }
      if (!ir::Equal(*now->type, *before.type)) {
        return Internal(base::Cat(op->info->name, ": %", before.name, " is ", ir::ToString(*before.type),
                                  ", made of others it is ", ir::ToString(*now->type)));
      }
      now->layout = before.layout;
      std::set<const ir::Value*> parts;  // Lookups only.
      for (ir::Op* made = op->prev; made != last; made = made->prev) parts.insert(made->results[0]);
      CarryStreamsBack(graph, *now, [&](const ir::Value& value) { return parts.contains(&value); });
      replaced.Replace(&before, now);
      graph.TakeName(*now, before);
      graph.body.Erase(op);
    }
    op = next;
  }
  replaced.ApplyToOutputs(graph);
  return {};
}

}  // namespace

Status DecomposeOps(ir::Graph& graph) {
  return DecomposeEach(
      graph, [](const ir::Op& op) { return IsComposite(CodeOf(op)); }, Decompose);
}
Status DecomposeAttention(ir::Graph& graph) {
  return DecomposeEach(
      graph, [](const ir::Op& op) { return IsAttention(CodeOf(op)); }, AttentionAsProducts);
}
Status DecomposeAttentionBeyondCudnn(ir::Graph& graph) {
  return DecomposeEach(
      graph, [](const ir::Op& op) { return IsAttention(CodeOf(op)) && !IsFused(op); }, AttentionAsProducts);
}

}  // namespace hir::fusion
