#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferPermute(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<int64_t> dims, NormalOrder(op.Ints("dims"), axes.size()));
  SetInts(graph, op, "dims", dims);
  std::vector<ir::Axis> result;
  for (const int64_t dim : dims) result.push_back(axes[static_cast<size_t>(dim)]);
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesPermute(const ir::Op& op, std::vector<AxisLink>& links) {
  int at = 0;
  for (const int64_t dim : op.Ints("dims")) links.push_back({0, static_cast<int>(dim), 0, at++, AxisRelation::kSame});
}

const Element* DefinePermute(ElementBuilder& builder, const ir::Op& op, Index index) {
  std::vector<const Element*> own(index.size());
  const std::span<const int64_t> dims = op.Ints("dims");
  for (size_t i = 0; i < dims.size(); ++i) own[static_cast<size_t>(dims[i])] = index[i];
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
