// one_hot: 1 at the class that an integer names, 0 at the others, along a new last axis.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/indices.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {

Status InferOneHot(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_TRY(CheckIndices(op, 0));
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  const int64_t classes = op.Int("classes");
  if (classes < 0) return InvalidArgument(base::Cat("classes=", classes, "; it is 0 or more"));
  axes.push_back({ir::AxisKind::kIteration, graph.exprs().Const(classes)});
  return SetTensor(graph, op, dtype, axes);
}

const Element* DefineOneHot(ElementBuilder& builder, const ir::Op& op, Index index) {
  const Element* named = builder.Convert(DType::kInt64, builder.Load(op.operands[0], index.first(index.size() - 1)));
  const DType dtype = op.results[0]->type->dtype;
  const Element* hit = builder.Apply(Prim::kEq, {named, index.back()});
  return builder.Convert(dtype, builder.Convert(ComputeDType(dtype), hit));
}

ir::Value* DecomposeOneHot(ir::Builder& builder, const ir::Op& op) {
  const std::string name(op.results[0]->name);
  std::vector<int64_t> flags(ir::ValueAxes(*op.operands[0]->type).size() + 1, 0);
  flags.back() = 1;
  ir::Value* named =
      builder.Make("broadcast", {op.operands[0]}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
  ir::Value* classes =
      SequenceAlong(builder, builder.graph().exprs().Const(op.Int("classes")), 0, 1, base::Cat(name, ".class"));
  ir::Value* hit = builder.Make("eq", {named, classes}, {}, base::Cat(name, ".hit"));
  const DType dtype = op.results[0]->type->dtype;
  return dtype == DType::kBool ? hit : builder.Make("cast", {hit}, {{"dtype", DTypeName(dtype)}});
}

}  // namespace hir::fusion
