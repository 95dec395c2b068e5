// x[..., k] w[n, k] (bias[n]) -> [..., n, r:k].
#include "csrc/base/text.h"
#include "csrc/fusion/ops/contraction.h"

namespace hir::fusion {

using base::Cat;

Status InferLinear(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  if (op.operands.size() != 2 && op.operands.size() != 3) {
    return InvalidArgument(Cat(op.operands.size(), " operands; it takes x, the weight and perhaps a bias"));
  }
  HIR_ASSIGN(const std::vector<ir::Axis> x, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<ir::Axis> w, TensorAxes(op, 1));
  const ir::Value& weight = *op.operands[1];
  if (x.empty()) return InvalidArgument(Cat("%", op.operands[0]->name, " has no axes; one or more are needed"));
  if (w.size() != 2)
    return InvalidArgument(Cat("the weight %", weight.name, " has ", w.size(), " axes; it must be [out, in]"));
  HIR_ASSIGN(const DType dtype, ContractionType(op));
  HIR_TRY(Unify(graph, x.back().extent, w[1].extent, AxisName(*op.operands[0], x.size() - 1), AxisName(weight, 1)));
  if (op.operands.size() == 3) HIR_TRY(CheckBias(graph, op, 1, 0));
  std::vector<ir::Axis> result(x.begin(), x.end() - 1);
  result.push_back(w[0]);
  for (ir::Axis& axis : result) axis.kind = ir::AxisKind::kIteration;  // A library writes all of it.
  result.push_back({ir::AxisKind::kReduction, x.back().extent});
  return SetTensor(graph, op, dtype, result);
}

void AxesLinear(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  const int contracted = static_cast<int>(result.size()) - 1;
  for (int i = 0; i < static_cast<int>(op.operands.size()); ++i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[static_cast<size_t>(i)]->type);
    for (int k = 0; k < static_cast<int>(axes.size()); ++k) {
      const bool is_contracted = i < 2 && k == static_cast<int>(axes.size()) - 1;
      const int to = is_contracted ? contracted : i == 0 ? k : contracted - 1;
      links.push_back({i, k, 0, to,
                       is_contracted ? AxisRelation::kContracted
                                     : SameOrBroadcast(axes[static_cast<size_t>(k)], result[static_cast<size_t>(to)])});
    }
  }
}

const Element* DefineLinear(ElementBuilder& builder, const ir::Op& op, Index index) {
  const ir::Value* x = op.operands[0];
  const ir::Value* w = op.operands[1];
  std::vector<const Element*> x_index(index.begin(), index.end() - 1);
  x_index.push_back(nullptr);
  const size_t last = x_index.size() - 1;
  const DType dtype = op.results[0]->type->dtype;
  const Element* sum = SumOfProducts(builder, dtype, op.results[0]->type->axes.back().extent, x, x_index, last, w,
                                     {index.back(), nullptr}, 1);
  return Finished(builder, op, sum, index.back());
}

}  // namespace hir::fusion
