// any, all: whether some or every element over axes differs from 0, as NaN does. Any of nothing is false, all true.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/reduced.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

// By element it is the greatest or least of bools as integers; what a reduction of nothing makes is beyond them.
const Element* DefineAnyAll(ElementBuilder& builder, const ir::Op& op, Index index, ReduceKind kind) {
  const ReducedLoops loops = LoopsOver(builder, op, op.Ints("axes"), index);
  const Element* differs = builder.Convert(DType::kBool, builder.Load(op.operands[0], loops.index));
  const Element* number = builder.Convert(DType::kInt32, differs);
  const Element* value = builder.Reduce(kind, loops.first, loops.trips, number);
  return builder.Apply(Prim::kGt, {value, builder.Int(DType::kInt32, 0)});
}

// A count of the elements that `counted` (ne or eq) finds, compared with 0: unlike a maximum it is defined of nothing.
ir::Value* DecomposeAnyAll(ir::Builder& builder, const ir::Op& op, std::string_view counted,
                           std::string_view compared) {
  ir::Value* x = op.operands[0];
  const std::string name(op.results[0]->name);
  ir::Value* hits = builder.Make(counted, {x, Zero(builder, x->type->dtype)}, {}, Cat(name, ".hit"));
  ir::Value* count = builder.Make(
      "sum", {hits}, {{"axes", op.Ints("axes")}, {"keepdim", op.Bool("keepdim")}, {"dtype", std::string_view("null")}},
      Cat(name, ".count"));
  return builder.Make(compared, {count, IntConstant(builder, 0)});
}

}  // namespace

Status InferAny(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferReduced(graph, op, DType::kBool);
}
const Element* DefineAny(ElementBuilder& builder, const ir::Op& op, Index index) {
  return DefineAnyAll(builder, op, index, ReduceKind::kMax);
}
ir::Value* DecomposeAny(ir::Builder& builder, const ir::Op& op) { return DecomposeAnyAll(builder, op, "ne", "ne"); }

Status InferAll(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferReduced(graph, op, DType::kBool);
}
const Element* DefineAll(ElementBuilder& builder, const ir::Op& op, Index index) {
  return DefineAnyAll(builder, op, index, ReduceKind::kMin);
}
ir::Value* DecomposeAll(ir::Builder& builder, const ir::Op& op) { return DecomposeAnyAll(builder, op, "eq", "eq"); }

}  // namespace hir::fusion
