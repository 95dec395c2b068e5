#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

Status InferBroadcast(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const std::vector<ir::Axis> axes, TensorAxes(op, 0));
  std::vector<ir::Axis> result;
  size_t next = 0;
  for (const int64_t flag : op.Ints("is_broadcast_dim")) {
    if (flag != 0 && flag != 1)
      return InvalidArgument(base::Cat("is_broadcast_dim holds ", flag, "; it holds 0 and 1"));
    if (flag == 1) {
      result.push_back({ir::AxisKind::kBroadcast, graph.exprs().Const(1)});
    } else if (next++ < axes.size()) {
      result.push_back(axes[next - 1]);
    }
  }
  if (next != axes.size()) {
    return InvalidArgument(
        base::Cat("is_broadcast_dim keeps ", next, " axes; %", op.operands[0]->name, " has ", axes.size()));
  }
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

void AxesBroadcast(const ir::Op& op, std::vector<AxisLink>& links) {
  int next = 0;
  const std::span<const int64_t> flags = op.Ints("is_broadcast_dim");
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) links.push_back({0, next++, 0, static_cast<int>(i), AxisRelation::kSame});
  }
}

const Element* DefineBroadcast(ElementBuilder& builder, const ir::Op& op, Index index) {
  std::vector<const Element*> own;
  const std::span<const int64_t> flags = op.Ints("is_broadcast_dim");
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) own.push_back(index[i]);
  }
  return builder.Load(op.operands[0], own);
}

}  // namespace hir::fusion
