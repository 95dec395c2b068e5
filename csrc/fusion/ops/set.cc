// set and segment_set: copies. They differ in what segmentation and planning make of them.
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferSet(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  return SetTensor(graph, op, op.operands[0]->type->dtype, axes);
}

void AxesSet(const ir::Op& op, std::vector<AxisLink>& links) { AxesPointwise(op, links); }

const Element* DefineSet(ElementBuilder& builder, const ir::Op& op, Index index) {
  return builder.Load(op.operands[0], index);
}

Status InferSegmentSet(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared) {
  return InferSet(graph, op, declared);
}
void AxesSegmentSet(const ir::Op& op, std::vector<AxisLink>& links) { AxesSet(op, links); }
const Element* DefineSegmentSet(ElementBuilder& builder, const ir::Op& op, Index index) {
  return DefineSet(builder, op, index);
}

}  // namespace hir::fusion
