// Products of groups of rows: x[s, k] and y[e, k, n] -> [s, n, r:k], each row by the matrix of its group, and what is
// the gradient of y, x[s, k] and y[s, n] -> [e, k, n, r:s]. Row i is of the first group g with i < ends[g], of none
// where there is no such g, so that a group begins where those before it end, whatever ends are.
//
// A rank that holds a part of the rows knows all ends, and by `offset` which rows it has.
#include "csrc/fusion/grouped.h"

#include <array>

#include "csrc/base/text.h"
#include "csrc/fusion/ops/contraction.h"

namespace hir::fusion {
namespace {

using base::Cat;

bool IsOuter(const ir::Op& op) { return CodeOf(op) == FusionOp::kGroupedOuter; }

// Axes of the matrices of grouped_matmul.
size_t ContractedAxis(const ir::Op& op) { return TransposedOf(op).y ? 2 : 1; }
size_t ColumnAxis(const ir::Op& op) { return 3 - ContractedAxis(op); }

Status CheckGroupedTypes(const ir::Op& op) {
  const ir::Value& x = *op.operands[0];
  const ir::Value& y = *op.operands[1];
  const ir::Value& ends = *op.operands[2];
  if (x.type->dtype == DType::kBool)
    return InvalidArgument(Cat("%", x.name, " is bool; numbers are needed: cast it first"));
  if (x.type->dtype != y.type->dtype) {
    return InvalidArgument(Cat("%", x.name, " is ", DTypeName(x.type->dtype), ", %", y.name, " is ",
                               DTypeName(y.type->dtype), "; operands have one element type"));
  }
  if (IsIndex(ends.type->dtype)) return {};
  return InvalidArgument(
      Cat("%", ends.name, " is ", DTypeName(ends.type->dtype), "; ends of groups are i32 or i64: cast it first"));
}

Status InferGrouped(ir::Graph& graph, ir::Op& op) {
  const bool is_outer = IsOuter(op);
  const std::string_view forms[] = {"x is [rows, k]", is_outer ? "y is [rows, n]" : "y is [groups, k, n]",
                                    "ends are [groups]"};
  const size_t ranks[] = {2, is_outer ? size_t{2} : size_t{3}, 1};
  std::array<std::vector<ir::Axis>, 3> axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    HIR_ASSIGN(axes[i], TensorAxes(op, static_cast<int>(i)));
    if (axes[i].size() == ranks[i]) continue;
    return InvalidArgument(Cat("%", op.operands[i]->name, " has ", axes[i].size(),
                               axes[i].size() == 1 ? " axis" : " axes", "; ", forms[i]));
  }
  HIR_TRY(CheckGroupedTypes(op));
  if (!is_outer && TransposedName({.y = TransposedOf(op).y}) != op.Name("transposed"))
    return InvalidArgument(Cat("transposed is none or y, not ", op.Name("transposed")));
  const auto unify = [&](size_t i, size_t axis, size_t j, size_t other) {
    return Unify(graph, axes[i][axis].extent, axes[j][other].extent, AxisName(*op.operands[i], axis),
                 AxisName(*op.operands[j], other));
  };
  std::vector<ir::Axis> result;
  if (is_outer) {
    HIR_TRY(unify(0, 0, 1, 0));
    result = {axes[2][0], axes[0][1], axes[1][1], axes[0][0]};
  } else {
    HIR_TRY(unify(0, 1, 1, ContractedAxis(op)));
    HIR_TRY(unify(1, 0, 2, 0));
    result = {axes[0][0], axes[1][ColumnAxis(op)], axes[0][1]};
  }
  for (ir::Axis& axis : result) axis.kind = ir::AxisKind::kIteration;  // A library writes all of it.
  result.back().kind = ir::AxisKind::kReduction;
  const std::span<const ir::Expr* const> offsets = op.Exprs("offset");
  if (offsets.size() != result.size()) {
    return InvalidArgument(
        Cat("offset has ", offsets.size(), " entries; the result has ", result.size(), " axes, the reduced one too"));
  }
  for (const ir::Expr* offset : offsets) HIR_TRY(RequireDivisors(graph, op, offset));
  return SetTensor(graph, op, op.operands[0]->type->dtype, result);
}

// Elements at groups and rows, for both definitions.
class Elements {
 public:
  Elements(ElementBuilder& builder, const ir::Op& op)
      : builder_(builder),
        op_(op),
        dtype_(op.operands[0]->type->dtype),
        num_groups_(ir::ValueAxes(*op.operands[2]->type)[0].extent) {}

  const Element* Product(Index index) {
    const Element* const count = builder_.Extent(num_groups_);
    // The group of the row, or their number.
    const Element* const row = Numbered(index[0]);
    const Element* const group = OverGroups(ReduceKind::kMin, [&](const Element* g) {
      return builder_.Select(builder_.Apply(Prim::kLt, {row, End(g)}), g, count);
    });
    std::vector<const Element*> of_y(3);
    of_y[0] = At(1, 0, group);
    of_y[ColumnAxis(op_)] = At(1, ColumnAxis(op_), index[1]);
    const Element* const sum =
        SumOfProducts(builder_, dtype_, ExtentOf(0, 1), op_.operands[0], {At(0, 0, index[0]), nullptr}, 1,
                      op_.operands[1], of_y, ContractedAxis(op_));
    return Result(builder_.Select(builder_.Apply(Prim::kLt, {group, count}), sum, Zero()));
  }

  const Element* Outer(Index index) {
    const Element* const begin = OverGroups(ReduceKind::kMax, [&](const Element* g) {
      const Element* const least = builder_.Int(DType::kInt64, 0);
      return builder_.Select(builder_.Apply(Prim::kLt, {g, index[0]}), End(g), least);
    });
    const int variable = builder_.NewReduceVariables(1);
    const Element* const i = builder_.ReduceIndex(variable);
    const Element* const row = Numbered(i);
    const Element* const inside = builder_.Apply(
        Prim::kAnd, {builder_.Apply(Prim::kGe, {row, begin}), builder_.Apply(Prim::kLt, {row, End(index[0])})});
    const auto load = [&](size_t operand, const Element* column) {
      const Element* const at[] = {At(operand, 0, i), At(operand, 1, column)};
      return builder_.Convert(ComputeDType(dtype_), builder_.Load(op_.operands[operand], at));
    };
    const Element* const product = builder_.Apply(Prim::kMul, {load(0, index[1]), load(1, index[2])});
    const ir::Expr* const rows = ExtentOf(0, 0);
    return Result(builder_.Reduce(ReduceKind::kSum, variable, {&rows, 1}, builder_.Select(inside, product, Zero())));
  }

 private:
  const ir::Expr* ExtentOf(size_t operand, size_t axis) const {
    return ir::ValueAxes(*op_.operands[operand]->type)[axis].extent;
  }
  const Element* At(size_t operand, size_t axis, const Element* place) {
    return ExtentOf(operand, axis)->IsConst(1) ? builder_.Int(DType::kInt64, 0) : place;
  }
  // A row as ends count it.
  const Element* Numbered(const Element* row) {
    return builder_.Apply(Prim::kAdd, {row, builder_.Extent(FirstRowOf(op_))});
  }
  const Element* End(const Element* group) {
    const Element* const at = At(2, 0, group);
    return builder_.Convert(DType::kInt64, builder_.Load(op_.operands[2], {&at, 1}));
  }
  const Element* Zero() { return builder_.Convert(ComputeDType(dtype_), builder_.Int(DType::kInt64, 0)); }
  const Element* Result(const Element* sum) { return builder_.Convert(dtype_, sum); }

  template <typename Term>
  const Element* OverGroups(ReduceKind kind, const Term& term) {
    const int variable = builder_.NewReduceVariables(1);
    const Element* const body = term(builder_.ReduceIndex(variable));
    return builder_.Reduce(kind, variable, {&num_groups_, 1}, body);
  }

  ElementBuilder& builder_;
  const ir::Op& op_;
  const DType dtype_;
  const ir::Expr* const num_groups_;
};

}  // namespace

Status InferGroupedMatmul(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferGrouped(graph, op);
}
Status InferGroupedOuter(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferGrouped(graph, op);
}

// Groups are whole on every rank, matrices and ends of all.
void AxesGroupedMatmul(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  const std::vector<ir::Axis> x = ir::ValueAxes(*op.operands[0]->type), y = ir::ValueAxes(*op.operands[1]->type);
  const size_t column = ColumnAxis(op);
  links.push_back({0, 0, 0, 0, SameOrBroadcast(x[0], result[0])});
  links.push_back({1, static_cast<int>(column), 0, 1, SameOrBroadcast(y[column], result[1])});
  links.push_back({0, 1, 0, 2, AxisRelation::kContracted});
  links.push_back({1, static_cast<int>(ContractedAxis(op)), 0, 2, AxisRelation::kContracted});
}

void AxesGroupedOuter(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  for (int i = 0; i < 2; ++i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[static_cast<size_t>(i)]->type);
    links.push_back({i, 1, 0, 1 + i, SameOrBroadcast(axes[1], result[static_cast<size_t>(1 + i)])});
    links.push_back({i, 0, 0, 3, AxisRelation::kContracted});
  }
  links.push_back({2, 0, 0, 0, AxisRelation::kOpaque});  // A group begins where all before it have ended.
}

const Element* DefineGroupedMatmul(ElementBuilder& builder, const ir::Op& op, Index index) {
  return Elements(builder, op).Product(index);
}
const Element* DefineGroupedOuter(ElementBuilder& builder, const ir::Op& op, Index index) {
  return Elements(builder, op).Outer(index);
}

size_t RowAxisOf(const ir::Op& op) { return IsOuter(op) ? 3 : 0; }
const ir::Expr* FirstRowOf(const ir::Op& op) { return op.Exprs("offset")[RowAxisOf(op)]; }

}  // namespace hir::fusion
