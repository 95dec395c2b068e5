// A sequence. `offset` is where a rank's part of it begins; in a user's program it is 0.
#include "csrc/base/text.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

using base::Cat;

Status InferIota(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype"));
  if (dtype == DType::kBool) return InvalidArgument("dtype=bool: a sequence is of numbers");
  for (const std::string_view name : {"shape", "offset"}) {
    if (op.Exprs(name).size() != 1)
      return InvalidArgument(Cat(name, " has ", op.Exprs(name).size(), " entries; a sequence has one axis"));
  }
  for (const ir::Value* value : op.operands) {
    if (value->type->kind != ir::TypeKind::kScalar) {
      return InvalidArgument(
          Cat("%", value->name, " is ", ir::ToString(*value->type), "; start and step are host scalars"));
    }
    if (IsInt(dtype) && IsFloat(value->type->dtype)) {
      return InvalidArgument(Cat("%", value->name, " is ", DTypeName(value->type->dtype), ", dtype=", DTypeName(dtype),
                                 " needs an integer: cast it first"));
    }
  }
  HIR_TRY(RequireExtents(graph, op, op.Exprs("shape")));
  const ir::Axis axis = {ir::AxisKind::kIteration, op.Exprs("shape")[0]};
  return SetTensor(graph, op, dtype, {&axis, 1});
}

void AxesIota(const ir::Op&, std::vector<AxisLink>&) {}

// Integers in i64, floats in f64: rounded once.
const Element* DefineIota(ElementBuilder& builder, const ir::Op& op, Index index) {
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = IsFloat(dtype) ? DType::kFloat64 : DType::kInt64;
  const Element* place = builder.Apply(Prim::kAdd, {index[0], builder.Extent(op.Exprs("offset")[0])});
  const Element* start = builder.Convert(carried, builder.Scalar(op.operands[0]));
  const Element* step = builder.Convert(carried, builder.Scalar(op.operands[1]));
  const Element* moved = builder.Apply(Prim::kMul, {builder.Convert(carried, place), step});
  return builder.Convert(dtype, builder.Apply(Prim::kAdd, {start, moved}));
}

}  // namespace hir::fusion
