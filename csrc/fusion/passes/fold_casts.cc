// Shortens chains of casts that keep every value.
//
// Before: %a: f32 = cast(%x: bf16)  %b: bf16 = cast(%a)  %c: f64 = cast(%a)  %d: f32 = cast(%a)
// After:  %a: f32 = cast(%x)        %x for %b            %c: f64 = cast(%x)  %a for %d
//
// A cast that widens loses nothing, so what is cast from its result may be cast from its operand. A cast that narrows
// rounds and stays. A value whose layout was decided keeps its op unless the replacement lies alike. Casts that nothing
// reads any more are left to dce.
#include "csrc/fusion/passes/fold_casts.h"

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {
namespace {

// Whether each value of `from` is a value of `to`.
bool Widens(DType from, DType to) {
  if (from == to || from == DType::kBool) return true;
  switch (to) {
    case DType::kFloat64: return from != DType::kInt64;
    case DType::kFloat32: return from != DType::kInt32 && from != DType::kInt64 && from != DType::kFloat64;
    case DType::kInt64: return IsInt(from);
    case DType::kInt32:
    case DType::kFloat16:
    case DType::kBFloat16: return from == DType::kUInt8 || from == DType::kInt8;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8: return false;
  }
  return false;
}

// Whether a cast to `to` gives the same of `middle`, which holds each value of `from`, as of `from` itself: what an
// integer type does not hold saturates when it comes as a float, and wraps as an integer.
bool MayPass(DType from, DType middle, DType to) {
  return Widens(from, middle) && (!IsFloat(middle) || IsFloat(from) || !IsInt(to) || Widens(from, to));
}

// Whether `value` may stand in for one with the layout `wanted`.
bool LiesAlike(const ir::Layout* wanted, const ir::Value& value) {
  return wanted == nullptr || (value.layout != nullptr && ir::Equal(*wanted, *value.layout));
}

}  // namespace

Status FoldCasts(ir::Graph& graph) {
  Replacements replaced;
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    replaced.Apply(*op);
    if (CodeOf(*op) != FusionOp::kCast) continue;
    const ir::Op* inner = op->operands[0]->def;
    if (inner != nullptr && CodeOf(*inner) == FusionOp::kCast &&
        LiesAlike(inner->results[0]->layout, *inner->operands[0]) &&
        MayPass(inner->operands[0]->type->dtype, inner->results[0]->type->dtype, op->results[0]->type->dtype)) {
      op->operands[0] = inner->operands[0];
    }
    ir::Value* x = op->operands[0];
    const bool takes_over = TakesOver(graph, op->results[0]) && x->layout != nullptr;
    if (x->type->dtype == op->results[0]->type->dtype && LiesAlike(op->results[0]->layout, *x) && !takes_over) {
      replaced.Replace(op->results[0], x);
    }
  }
  replaced.ApplyToOutputs(graph);
  return {};
}

}  // namespace hir::fusion
