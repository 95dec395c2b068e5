// NumPy's matmul: x[..., m, k] y[..., k, n] -> [..., m, n, r:k]; an operand of one axis is a row (x) or column (y) that
// the result lacks. Planning may give it a bias[n], and operands as they were before a permute.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/ops/contraction.h"

namespace hir::fusion {
namespace {

using base::Cat;

struct Operand {
  std::vector<ir::Axis> axes;
  bool vector = false;    // One axis, the contracted one.
  size_t batch = 0;       // How many leading axes are batch axes.
  size_t contracted = 0;  // Axis numbers.
  size_t free = 0;        // Unless `vector`.
};

// `first`: the contracted axis comes before the other one.
Operand Describe(std::vector<ir::Axis> axes, bool first) {
  Operand operand = {.axes = std::move(axes)};
  const size_t rank = operand.axes.size();
  operand.vector = rank == 1;
  if (operand.vector) return operand;
  operand.batch = rank - 2;
  operand.contracted = first ? rank - 2 : rank - 1;
  operand.free = first ? rank - 1 : rank - 2;
  return operand;
}

Operand Describe(const ir::Op& op, size_t i) {
  const Transposed transposed = TransposedOf(op);
  return Describe(ir::ValueAxes(*op.operands[i]->type), i == 0 ? transposed.x : !transposed.y);
}

}  // namespace

std::string_view TransposedName(Transposed transposed) {
  if (transposed.x) return transposed.y ? "both" : "x";
  return transposed.y ? "y" : kNotTransposed;
}

Transposed TransposedOf(const ir::Op& op) {
  if (CodeOf(op) != FusionOp::kMatmul && CodeOf(op) != FusionOp::kGroupedMatmul) return {};
  const std::string_view name = op.Name("transposed");
  return {.x = name == "x" || name == "both", .y = name == "y" || name == "both"};
}

Result<DType> ContractionType(const ir::Op& op) {
  const DType dtype = op.operands[0]->type->dtype;
  for (const ir::Value* value : op.operands) {
    if (value->type->dtype == DType::kBool)
      return InvalidArgument(Cat("%", value->name, " is bool; numbers are needed: cast it first"));
    if (value->type->dtype != dtype) {
      return InvalidArgument(Cat("%", op.operands[0]->name, " is ", DTypeName(dtype), ", %", value->name, " is ",
                                 DTypeName(value->type->dtype), "; operands have one element type"));
    }
  }
  const std::string_view epilogue = op.Name("epilogue"), precision = op.Name("precision");
  const auto names = [&](FusionOp code) { return kFusionOps.ops[static_cast<size_t>(code)].name == epilogue; };
  if (epilogue != kNoEpilogue) {
    if (std::ranges::none_of(kEpilogues, names))
      return InvalidArgument(Cat("epilogue is none, gelu, relu or tanh_gelu, not ", epilogue));
    if (!IsFloat(dtype)) return InvalidArgument(Cat("epilogue ", epilogue, " is for floats, not ", DTypeName(dtype)));
  }
  if (precision != kFullPrecision) {
    if (precision != kTf32) return InvalidArgument(Cat("precision is full or tf32, not ", precision));
    if (dtype != DType::kFloat32) return InvalidArgument(Cat("precision tf32 is for f32, not ", DTypeName(dtype)));
  }
  return dtype;
}

Status CheckBias(ir::Graph& graph, const ir::Op& op, size_t weight, size_t weight_axis) {
  HIR_ASSIGN(const std::vector<ir::Axis> bias, TensorAxes(op, 2));
  const ir::Value& value = *op.operands[2];
  if (bias.size() != 1)
    return InvalidArgument(Cat("the bias %", value.name, " has ", bias.size(), " axes; it must be [out]"));
  const ir::Value& of = *op.operands[weight];
  return Unify(graph, ir::ValueAxes(*of.type)[weight_axis].extent, bias[0].extent, AxisName(of, weight_axis),
               AxisName(value, 0));
}

const Element* Finished(ElementBuilder& builder, const ir::Op& op, const Element* sum, const Element* column) {
  const DType dtype = op.results[0]->type->dtype;
  if (op.operands.size() == 3) {
    const ir::Axis axis = ir::ValueAxes(*op.operands[2]->type)[0];
    const Element* at = IsOne(axis) ? builder.Int(DType::kInt64, 0) : column;
    const Element* bias = builder.Load(op.operands[2], std::span(&at, 1));
    sum = builder.Apply(Prim::kAdd, {sum, builder.Convert(ComputeDType(dtype), bias)});
  }
  if (const std::string_view epilogue = op.Name("epilogue"); epilogue != kNoEpilogue)
    sum = ApplyFormula(static_cast<FusionOp>(kFusionOps.Find(epilogue)->code), builder, sum);
  return builder.Convert(dtype, sum);
}

const Element* SumOfProducts(ElementBuilder& builder, DType dtype, const ir::Expr* extent, const ir::Value* x,
                             std::vector<const Element*> x_index, size_t x_axis, const ir::Value* y,
                             std::vector<const Element*> y_index, size_t y_axis) {
  const int variable = builder.NewReduceVariables(1);
  const Element* k = builder.ReduceIndex(variable);
  const auto at = [&](const ir::Value* value, size_t axis) {
    return IsOne(ir::ValueAxes(*value->type)[axis]) ? builder.Int(DType::kInt64, 0) : k;
  };
  x_index[x_axis] = at(x, x_axis);
  y_index[y_axis] = at(y, y_axis);
  const DType carried = ComputeDType(dtype);
  const Element* product = builder.Apply(Prim::kMul, {builder.Convert(carried, builder.Load(x, x_index)),
                                                      builder.Convert(carried, builder.Load(y, y_index))});
  return builder.Reduce(ReduceKind::kSum, variable, std::span(&extent, 1), product);
}

Status InferMatmul(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  if (op.operands.size() != 2 && op.operands.size() != 3)
    return InvalidArgument(Cat(op.operands.size(), " operands; it takes x and y"));
  Operand operands[2];
  for (int i = 0; i < 2; ++i) {
    HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, i));
    if (axes.empty())
      return InvalidArgument(
          Cat("%", op.operands[static_cast<size_t>(i)]->name, " has no axes; one or more are needed"));
    operands[i] = Describe(op, static_cast<size_t>(i));
  }
  const auto& [x, y] = operands;
  if (const Transposed transposed = TransposedOf(op); TransposedName(transposed) != op.Name("transposed")) {
    return InvalidArgument(Cat("transposed is none, x, y or both, not ", op.Name("transposed")));
  } else if ((transposed.x && x.vector) || (transposed.y && y.vector)) {
    return InvalidArgument("transposed: an operand of one axis has none to swap");
  }
  HIR_ASSIGN(const DType dtype, ContractionType(op));
  HIR_TRY(Unify(graph, x.axes[x.contracted].extent, y.axes[y.contracted].extent,
                AxisName(*op.operands[0], x.contracted), AxisName(*op.operands[1], y.contracted)));
  if (op.operands.size() == 3) {
    if (y.axes.size() != 2) return InvalidArgument(Cat("a bias, but %", op.operands[1]->name, " is no matrix"));
    HIR_TRY(CheckBias(graph, op, 1, y.free));
  }
  std::vector<ShapedOperand> batches;
  for (size_t i = 0; i < 2; ++i) {
    const auto begin = operands[i].axes.begin();
    batches.push_back({op.operands[i], {begin, begin + static_cast<std::ptrdiff_t>(operands[i].batch)}});
  }
  HIR_ASSIGN(std::vector<ir::Axis> result, BroadcastAxes(graph, batches));
  if (!x.vector) result.push_back(x.axes[x.free]);
  if (!y.vector) result.push_back(y.axes[y.free]);
  for (ir::Axis& axis : result) axis.kind = ir::AxisKind::kIteration;  // A library writes all of it.
  result.push_back({ir::AxisKind::kReduction, x.axes[x.contracted].extent});
  return SetTensor(graph, op, dtype, result);
}

void AxesMatmul(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  const Operand x = Describe(op, 0);
  const Operand y = Describe(op, 1);
  const size_t contracted = result.size() - 1;
  const size_t batch = std::max(x.batch, y.batch);
  const auto link = [&](int operand, const Operand& of, size_t axis, size_t to) {
    links.push_back({operand, static_cast<int>(axis), 0, static_cast<int>(to),
                     to == contracted ? AxisRelation::kContracted : SameOrBroadcast(of.axes[axis], result[to])});
  };
  for (int i = 0; i < 2; ++i) {
    const Operand& of = i == 0 ? x : y;
    for (size_t k = 0; k < of.batch; ++k) link(i, of, k, batch - of.batch + k);
    if (!of.vector) link(i, of, of.free, i == 0 ? batch : contracted - 1);
    link(i, of, of.contracted, contracted);
  }
  if (op.operands.size() == 3) link(2, {.axes = ir::ValueAxes(*op.operands[2]->type)}, 0, contracted - 1);
}

const Element* DefineMatmul(ElementBuilder& builder, const ir::Op& op, Index index) {
  const Operand operands[2] = {Describe(op, 0), Describe(op, 1)};
  const size_t batch = std::max(operands[0].batch, operands[1].batch);
  std::vector<const Element*> own[2];
  for (size_t i = 0; i < 2; ++i) {
    const Operand& of = operands[i];
    own[i].resize(of.axes.size());
    const auto at = [&](size_t axis, const Element* where) {
      own[i][axis] = IsOne(of.axes[axis]) ? builder.Int(DType::kInt64, 0) : where;
    };
    for (size_t k = 0; k < of.batch; ++k) at(k, index[batch - of.batch + k]);
    if (!of.vector) at(of.free, i == 0 ? index[batch] : index.back());
  }
  const DType dtype = op.results[0]->type->dtype;
  const ir::Expr* extent = op.results[0]->type->axes.back().extent;
  return Finished(builder, op,
                  SumOfProducts(builder, dtype, extent, op.operands[0], own[0], operands[0].contracted, op.operands[1],
                                own[1], operands[1].contracted),
                  index.empty() ? nullptr : index.back());
}

}  // namespace hir::fusion
