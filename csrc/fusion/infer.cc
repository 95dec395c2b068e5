#include "csrc/fusion/infer.h"

#include <algorithm>

#include "csrc/base/text.h"

namespace hir::fusion {

using base::Cat;

namespace {

// One of two extents that a guard holds equal: whatever the order of operands is, the result's is the same.
const ir::Expr* Simpler(const ir::Expr* a, const ir::Expr* b) {
  if (a->IsConst() != b->IsConst()) return a->IsConst() ? a : b;
  return ir::Compare(a, b) <= 0 ? a : b;
}

}  // namespace

Result<std::vector<ir::Axis>> TensorAxes(const ir::Op& op, int i) {
  const ir::Value& value = *op.operands[static_cast<size_t>(i)];
  if (value.type->kind != ir::TypeKind::kTensor) {
    return InvalidArgument(Cat("%", value.name, " is ", ir::ToString(*value.type), "; a tensor is needed"));
  }
  return ir::ValueAxes(*value.type);
}

std::string AxisName(const ir::Value& value, size_t axis) { return Cat("axis ", axis, " of %", value.name); }

Result<int64_t> NormalAxis(int64_t axis, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (axis >= -n && axis < n) return axis < 0 ? axis + n : axis;
  if (n == 0) return InvalidArgument(Cat("axis ", axis, " of a tensor without axes"));
  return InvalidArgument(Cat("axis ", axis, " is not in [", -n, ", ", n - 1, "]"));
}

bool IsSqueezed(const ir::Op& op, size_t axis) {
  return std::ranges::find(op.Ints("axes"), static_cast<int64_t>(axis)) != op.Ints("axes").end();
}

Result<std::vector<int64_t>> NormalAxes(std::span<const int64_t> axes, size_t rank) {
  std::vector<int64_t> normal;
  for (const int64_t axis : axes) {
    HIR_ASSIGN(const int64_t one, NormalAxis(axis, rank));
    if (std::ranges::find(normal, one) != normal.end()) return InvalidArgument(Cat("axis ", one, " is given twice"));
    normal.push_back(one);
  }
  std::ranges::sort(normal);
  return normal;
}

Result<std::vector<int64_t>> NormalOrder(std::span<const int64_t> axes, size_t rank) {
  if (axes.size() != rank) {
    return InvalidArgument(Cat("dims has ", axes.size(), " entries; the tensor has ", rank, " axes"));
  }
  HIR_TRY(NormalAxes(axes, rank).status());
  std::vector<int64_t> normal;
  for (const int64_t axis : axes) normal.push_back(*NormalAxis(axis, rank));
  return normal;
}

Status Unify(ir::Graph& graph, const ir::Expr* a, const ir::Expr* b, std::string_view name_a, std::string_view name_b) {
  a = graph.Resolve(a);
  b = graph.Resolve(b);
  if (a == b) return {};
  if (a->IsConst() && b->IsConst()) {
    return InvalidArgument(Cat(name_a, " has extent ", a->value, ", ", name_b, " has extent ", b->value));
  }
  return ir::Builder::Unify(graph, a, b, Cat(name_a, " and ", name_b));
}

Status RequireEqual(ir::Graph& graph, const ir::Expr* left, const ir::Expr* right, std::string reason) {
  return graph.AddGuard({ir::Guard::Kind::kEqual, left, right, std::move(reason)});
}

Status RequireAtMost(ir::Graph& graph, const ir::Expr* left, const ir::Expr* right, std::string reason) {
  return graph.AddGuard({ir::Guard::Kind::kAtMost, left, right, std::move(reason)});
}

namespace {

// Whether it is 0 or more for all sizes, as it is written: sums, products, and parts by a positive number.
bool IsPlainSize(const ir::Expr* e) {
  using ir::ExprKind;
  const bool plain_args = std::ranges::all_of(e->args, IsPlainSize);
  switch (e->kind) {
    case ExprKind::kSymbol: return true;
    case ExprKind::kConst:
    case ExprKind::kAdd:
    case ExprKind::kMul: return e->value >= 0 && plain_args;
    case ExprKind::kFloorDiv:
    case ExprKind::kCeilDiv:
    case ExprKind::kMod: return plain_args && e->args[1]->IsConst() && e->args[1]->value > 0;
    case ExprKind::kMin: return plain_args;
    case ExprKind::kMax: return std::ranges::any_of(e->args, IsPlainSize);
  }
  return false;
}

}  // namespace

Status RequireExtents(ir::Graph& graph, const ir::Op& op, std::span<const ir::Expr* const> extents) {
  for (const ir::Expr* extent : extents) {
    if (extent->IsConst() || IsPlainSize(extent)) continue;  // Graph::Tensor sees to constants.
    HIR_TRY(RequireAtMost(graph, graph.exprs().Const(0), extent,
                          Cat(op.info->name, " to an extent of ", ir::ToString(extent))));
  }
  return {};
}

Status RequireDivisors(ir::Graph& graph, const ir::Op& op, const ir::Expr* value) {
  using ir::ExprKind;
  if (value->kind == ExprKind::kFloorDiv || value->kind == ExprKind::kMod || value->kind == ExprKind::kCeilDiv) {
    HIR_TRY(
        RequireAtMost(graph, graph.exprs().Const(1), value->args[1], Cat(op.info->name, " of ", ir::ToString(value))));
  }
  for (const ir::Expr* arg : value->args) HIR_TRY(RequireDivisors(graph, op, arg));
  return {};
}

Result<std::vector<ir::Axis>> BroadcastAxes(ir::Graph& graph, std::span<const ShapedOperand> operands) {
  size_t rank = 0;
  for (const ShapedOperand& operand : operands) rank = std::max(rank, operand.axes.size());
  std::vector<ir::Axis> result;
  for (size_t i = 0; i < rank; ++i) {
    ir::Axis axis = {ir::AxisKind::kBroadcast, graph.exprs().Const(1)};
    std::string axis_name;
    for (const ShapedOperand& operand : operands) {
      const size_t missing = rank - operand.axes.size();
      if (i < missing) continue;
      const ir::Axis& given = operand.axes[i - missing];
      if (IsOne(given)) {
        // An iteration axis of extent 1 makes the result's one, unless another operand stretches it.
        if (IsOne(axis) && given.kind == ir::AxisKind::kIteration) axis.kind = given.kind;
        continue;
      }
      if (IsOne(axis)) {
        axis = given;
        axis_name = AxisName(*operand.value, i - missing);
        continue;
      }
      HIR_TRY(Unify(graph, axis.extent, given.extent, axis_name, AxisName(*operand.value, i - missing)));
      if (given.kind == ir::AxisKind::kIteration) axis.kind = given.kind;
      axis.extent = Simpler(graph.Resolve(axis.extent), graph.Resolve(given.extent));
    }
    axis.extent = graph.Resolve(axis.extent);
    result.push_back(axis);
  }
  return result;
}

Result<DType> DTypeAttr(const ir::Op& op, std::string_view name) {
  const std::string_view word = op.Name(name);
  const std::optional<DType> dtype = ParseDType(word);
  if (!dtype) {
    return InvalidArgument(Cat(name, "=", word, " is not an element type (", kDTypeNames, ")"));
  }
  return *dtype;
}

Result<DType> DTypeAttr(const ir::Op& op, std::string_view name, DType null_is) {
  if (op.Name(name) == "null") return null_is;
  return DTypeAttr(op, name);
}

void SetAttr(ir::Op& op, std::string_view name, ir::AttrValue value) {
  const auto attr = std::ranges::find(op.attrs, name, &ir::Attr::name);
  HIR_CHECK(attr != op.attrs.end() && attr->value.index() == value.index());
  attr->value = value;
}

void SetInts(ir::Graph& graph, ir::Op& op, std::string_view name, const std::vector<int64_t>& values) {
  SetAttr(op, name, std::span<const int64_t>(graph.Copy(values)));
}

void SetExprs(ir::Graph& graph, ir::Op& op, std::string_view name, const std::vector<const ir::Expr*>& values) {
  std::vector<const ir::Expr*> resolved;
  for (const ir::Expr* value : values) resolved.push_back(graph.Resolve(value));
  SetAttr(op, name, std::span<const ir::Expr* const>(graph.Copy(resolved)));
}

Status CheckCount(const ir::Op& op, std::string_view name, size_t count, size_t rank) {
  if (count == rank) return {};
  return InvalidArgument(Cat(name, " has ", count, " entries; %", op.operands[0]->name, " has ", rank, " axes"));
}

Status SetTensor(ir::Graph& graph, ir::Op& op, DType dtype, std::span<const ir::Axis> axes) {
  HIR_TRY(graph.exprs().status());
  const ir::Type* type = graph.Tensor(dtype, axes);
  HIR_TRY(ir::CheckType(*type));
  op.results[0]->type = type;
  return {};
}

}  // namespace hir::fusion
