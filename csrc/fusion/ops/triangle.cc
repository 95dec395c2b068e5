// triu, tril: x on one side of a diagonal of its last two axes, 0 on the other.
#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

Status InferTriangle(ir::Graph& graph, ir::Op& op) {
  HIR_ASSIGN(const std::vector<ir::Axis> x, TensorAxes(op, 0));
  const ir::Value& from = *op.operands[0];
  if (x.size() < 2) return InvalidArgument(base::Cat("%", from.name, " has ", x.size(), " axes; two are needed"));
  constexpr int64_t kLimit = int64_t{1} << 53;
  const int64_t diagonal = op.Int("diagonal");
  if (diagonal < -kLimit || diagonal > kLimit)
    return InvalidArgument(base::Cat("diagonal=", diagonal, " is not in [-2^53, 2^53]"));
  std::vector<ir::Axis> mask = {x[x.size() - 2], x[x.size() - 1]};
  for (ir::Axis& axis : mask) axis.kind = ir::AxisKind::kIteration;  // An axis stored once is stored in full.
  const ShapedOperand operands[] = {{&from, x}, {&from, mask}};
  HIR_ASSIGN(const std::vector<ir::Axis> result, BroadcastAxes(graph, operands));
  return SetTensor(graph, op, from.type->dtype, result);
}

const Element* DefineTriangle(ElementBuilder& builder, const ir::Op& op, Index index, Prim kept) {
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = ComputeDType(dtype);
  const Element* along = builder.Apply(Prim::kSub, {index[index.size() - 1], index[index.size() - 2]});
  const Element* keep = builder.Apply(kept, {along, builder.Int(DType::kInt64, op.Int("diagonal"))});
  const Element* zero = builder.Convert(carried, builder.Int(DType::kInt64, 0));
  const Element* x = builder.Convert(carried, builder.Load(op.operands[0], index));
  return builder.Convert(dtype, builder.Select(keep, x, zero));
}

ir::Value* DecomposeTriangle(ir::Builder& builder, const ir::Op& op, std::string_view kept) {
  ir::Value* x = op.operands[0];
  const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
  const std::string name(op.results[0]->name);
  ir::Value* rows = SequenceAlong(builder, axes[axes.size() - 2].extent, 0, 2, base::Cat(name, ".row"));
  ir::Value* columns = SequenceAlong(builder, axes[axes.size() - 1].extent, 0, 1, base::Cat(name, ".column"));
  ir::Value* along = builder.Make("sub", {columns, rows});
  ir::Value* keep = builder.Make(kept, {along, IntConstant(builder, op.Int("diagonal"))}, {}, base::Cat(name, ".keep"));
  return builder.Make("where", {keep, x, Zero(builder, x->type->dtype)});
}

}  // namespace

#define TRIANGLE(Name, kPrim, kept)                                                     \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {  \
    return InferTriangle(graph, op);                                                    \
  }                                                                                     \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index) { \
    return DefineTriangle(builder, op, index, kPrim);                                   \
  }                                                                                     \
  ir::Value* Decompose##Name(ir::Builder& builder, const ir::Op& op) { return DecomposeTriangle(builder, op, kept); }
TRIANGLE(Triu, Prim::kGe, "ge")
TRIANGLE(Tril, Prim::kLe, "le")
#undef TRIANGLE

}  // namespace hir::fusion
