#include <cmath>

#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

constexpr int64_t kIntegerMax = int64_t{1} << 53;  // The attribute is a double.

}  // namespace

Status InferConstant(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  const double value = op.Float("value");
  if (IsInt(dtype) && !(value == std::trunc(value) && std::fabs(value) <= static_cast<double>(kIntegerMax))) {
    return InvalidArgument(base::Cat("value=", value, " is not an integer between -2^53 and 2^53"));
  }
  if (IsInt(dtype) && value != static_cast<double>(Wrap(dtype, static_cast<int64_t>(value)))) {
    return InvalidArgument(base::Cat("value=", value, " does not fit ", DTypeName(dtype)));
  }
  if (dtype == DType::kBool && value != 0 && value != 1) {
    return InvalidArgument(base::Cat("value=", value, " is not a bool (0 or 1)"));
  }
  op.results[0]->type = graph.Scalar(dtype);
  return {};
}

void AxesConstant(const ir::Op&, std::vector<AxisLink>&) {}

const Element* DefineConstant(ElementBuilder& builder, const ir::Op& op, Index) {
  return builder.Convert(op.results[0]->type->dtype, builder.Float(DType::kFloat64, op.Float("value")));
}

}  // namespace hir::fusion
