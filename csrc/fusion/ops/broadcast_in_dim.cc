#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/ops/stretch.h"

namespace hir::fusion {

Status InferBroadcastInDim(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  const std::vector<const ir::Expr*> shape(op.Exprs("shape").begin(), op.Exprs("shape").end());
  const std::span<const int64_t> dims = op.Ints("dims");
  HIR_TRY(CheckCount(op, "dims", dims.size(), axes.size()));
  std::vector<int64_t> normal;
  for (const int64_t dim : dims) {
    HIR_ASSIGN(const int64_t one, NormalAxis(dim, shape.size()));
    if (!normal.empty() && one <= normal.back()) {
      return InvalidArgument(base::Cat("dims holds ", one, " after ", normal.back(), "; it must ascend"));
    }
    normal.push_back(one);
  }
  SetInts(graph, op, "dims", normal);
  HIR_TRY(RequireExtents(graph, op, shape));
  std::vector<ir::Axis> result;
  for (const ir::Expr* extent : shape) {
    const bool none = graph.Resolve(extent)->IsConst(0);  // Then not even one element is stored.
    result.push_back({none ? ir::AxisKind::kIteration : ir::AxisKind::kBroadcast, extent});
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<size_t>(normal[i]);
    HIR_ASSIGN(result[at], Stretch(graph, *op.operands[0], i, axes[i], at, shape[at]));
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesBroadcastInDim(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const std::span<const int64_t> dims = op.Ints("dims");
  for (size_t i = 0; i < axes.size(); ++i) {
    links.push_back({0, static_cast<int>(i), 0, static_cast<int>(dims[i]),
                     SameOrBroadcast(axes[i], op.results[0]->type->axes[static_cast<size_t>(dims[i])])});
  }
}

const Element* DefineBroadcastInDim(ElementBuilder& builder, const ir::Op& op, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const std::span<const int64_t> dims = op.Ints("dims");
  std::vector<const Element*> own;
  for (size_t i = 0; i < axes.size(); ++i) {
    own.push_back(IsOne(axes[i]) ? builder.Int(DType::kInt64, 0) : index[static_cast<size_t>(dims[i])]);
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
