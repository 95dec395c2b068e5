#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
Status InferSqueeze(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const std::vector<int64_t> squeezed, NormalAxes(op.Ints("axes"), axes.size()));
  SetInts(graph, op, "axes", squeezed);
  std::vector<ir::Axis> result;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!IsSqueezed(op, i)) {
      result.push_back(axes[i]);
    } else if (!IsOne(axes[i])) {
      return InvalidArgument(base::Cat(AxisName(*op.operands[0], i), " has extent ", ir::ToString(axes[i].extent),
                                       "; only axes of extent 1 can go"));
    }
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesSqueeze(const ir::Op& op, std::vector<AxisLink>& links) {
  int next = 0;
  for (size_t i = 0; i < ir::ValueAxes(*op.operands[0]->type).size(); ++i) {
    if (!IsSqueezed(op, i)) links.push_back({0, static_cast<int>(i), 0, next++, AxisRelation::kSame});
  }
}

const Element* DefineSqueeze(ElementBuilder& builder, const ir::Op& op, Index index) {
  std::vector<const Element*> own;
  size_t next = 0;
  for (size_t i = 0; i < ir::ValueAxes(*op.operands[0]->type).size(); ++i) {
    own.push_back(IsSqueezed(op, i) ? builder.Int(DType::kInt64, 0) : index[next++]);
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
