// cumsum, cumprod: sums and products of an element and all before it along an axis. By masks: an element of the result
// asks all of the axis for those before it. Where the extent n is known they ask in blocks of about sqrt(n) elements,
// then the blocks before their own, so that the work is n^1.5.
#include <cmath>

#include "csrc/base/text.h"
#include "csrc/fusion/ops/asked.h"
#include "csrc/fusion/ops/sequence.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

using base::Cat;

constexpr int64_t kWhole = 64;  // Up to here one masked sum is one kernel, and no slower than three.

Status InferCumulative(ir::Graph& graph, ir::Op& op) {
  HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, 0));
  HIR_ASSIGN(const int64_t axis, NormalAxis(op.Int("axis"), axes.size()));
  SetAttr(op, "axis", axis);
  const DType given = op.operands[0]->type->dtype;
  HIR_ASSIGN(const DType dtype, DTypeAttr(op, "dtype", IsFloat(given) ? given : DType::kInt64));
  if (dtype == DType::kBool) return InvalidArgument("dtype=bool: a sum or product is a number");
  axes[static_cast<size_t>(axis)].kind = ir::AxisKind::kIteration;
  HIR_TRY(CheckAsked(graph, axes, static_cast<size_t>(axis)));
  return SetTensor(graph, op, dtype, axes);
}

const Element* DefineCumulative(ElementBuilder& builder, const ir::Op& op, Index index, ReduceKind kind) {
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const DType dtype = op.results[0]->type->dtype;
  const DType carried = ComputeDType(dtype);
  const ir::Expr* extent = ir::ValueAxes(*op.operands[0]->type)[axis].extent;
  const int variable = builder.NewReduceVariables(1);
  std::vector<const Element*> own(index.begin(), index.end());
  own[axis] = builder.ReduceIndex(variable);
  const Element* x = builder.Convert(carried, builder.Convert(dtype, builder.Load(op.operands[0], own)));
  const Element* neutral = builder.Convert(carried, builder.Int(DType::kInt64, IntNeutral(kind, DType::kInt64)));
  const Element* before = builder.Apply(Prim::kLe, {own[axis], index[axis]});
  const Element* counted = builder.Select(before, x, neutral);
  return builder.Convert(dtype, builder.Reduce(kind, variable, {&extent, 1}, counted));
}

class CumulativeParts {
 public:
  CumulativeParts(ir::Builder& builder, const ir::Op& op, ReduceKind kind)
      : builder_(builder), kind_(kind), name_(op.results[0]->name) {}

  // Along `axis`: of element i all j with `compared`(j, i), which is le or lt.
  ir::Value* Masked(ir::Value* x, size_t axis, std::string_view compared, std::string_view suffix) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
    ir::Value* asked = WithAxis(builder_, x, axis);
    const AskedPlaces places = PlacesAlong(builder_, axes, axis, Cat(name_, suffix));
    ir::Value* counted = builder_.Make(compared, {places.asked, places.own}, {}, Cat(name_, suffix, ".counted"));
    ir::Value* masked = builder_.Make("where", {counted, asked, Constant(InfoOf(kind_).neutral, x->type->dtype)});
    return Reduced(masked, axis + 1, Cat(name_, suffix));
  }

  // The same of le, in blocks of `length`, the last one padded.
  ir::Value* InBlocks(ir::Value* x, size_t axis, int64_t extent, int64_t length) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
    const int64_t blocks = (extent + length - 1) / length;
    std::vector<int64_t> widths(2 * (axes.size() - axis), 0);
    widths.back() = blocks * length - extent;
    if (widths.back() > 0) {
      x = builder_.Make("pad", {x}, {{"widths", std::span<const int64_t>(widths)}, {"value", InfoOf(kind_).neutral}},
                        Cat(name_, ".padded"));
    }
    ir::ExprPool& pool = builder_.graph().exprs();
    std::vector<const ir::Expr*> shape = Extents(axes);
    shape[axis] = pool.Const(length);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), pool.Const(blocks));
    ir::Value* blocked = Reshape(x, shape, ".blocks");
    ir::Value* within = Masked(blocked, axis + 1, "le", ".within");
    ir::Value* totals = Reduced(blocked, axis + 1, Cat(name_, ".total"));
    ir::Value* before = WithAxis(builder_, Masked(totals, axis, "lt", ".before"), axis + 1);
    ir::Value* all = builder_.Make(InfoOf(InfoOf(kind_).combine).name, {within, before});
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    shape[axis] = pool.Const(blocks * length);
    all = Reshape(all, shape, ".all");
    if (widths.back() == 0) return all;
    widths.back() = -widths.back();
    return builder_.Make("pad", {all}, {{"widths", std::span<const int64_t>(widths)}, {"value", 0.0}});
  }

  ir::Value* Cast(ir::Value* x, DType dtype) {
    if (x->type->dtype == dtype) return x;
    return builder_.Make("cast", {x}, {{"dtype", DTypeName(dtype)}});
  }

 private:
  static std::vector<const ir::Expr*> Extents(const std::vector<ir::Axis>& axes) {
    std::vector<const ir::Expr*> extents;
    for (const ir::Axis& axis : axes) extents.push_back(axis.extent);
    return extents;
  }
  ir::Value* Constant(double value, DType dtype) {
    return builder_.Make("constant", {}, {{"value", value}, {"dtype", DTypeName(dtype)}});
  }
  // In x's type: sums of i32 are asked for as such.
  ir::Value* Reduced(ir::Value* x, size_t axis, std::string_view name) {
    const int64_t over[] = {static_cast<int64_t>(axis)};
    return builder_.Make(
        InfoOf(kind_).name, {x},
        {{"axes", std::span<const int64_t>(over)}, {"keepdim", false}, {"dtype", DTypeName(x->type->dtype)}}, name);
  }
  ir::Value* Reshape(ir::Value* x, const std::vector<const ir::Expr*>& shape, std::string_view suffix) {
    return builder_.Make("reshape", {x}, {{"shape", std::span<const ir::Expr* const>(shape)}}, Cat(name_, suffix));
  }

  ir::Builder& builder_;
  const ReduceKind kind_;
  const std::string name_;
};

ir::Value* DecomposeCumulative(ir::Builder& builder, const ir::Op& op, ReduceKind kind) {
  CumulativeParts parts(builder, op, kind);
  const auto axis = static_cast<size_t>(op.Int("axis"));
  const DType dtype = op.results[0]->type->dtype;
  ir::Value* x = parts.Cast(parts.Cast(op.operands[0], dtype), ComputeDType(dtype));
  const ir::Expr* extent = ir::ValueAxes(*x->type)[axis].extent;
  const bool whole = !extent->IsConst() || extent->value <= kWhole;
  const auto root = whole ? 0 : static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(extent->value))));
  ir::Value* all = whole ? parts.Masked(x, axis, "le", ".all") : parts.InBlocks(x, axis, extent->value, root);
  return WithoutReductionAxes(builder, op, parts.Cast(all, dtype));
}

}  // namespace

#define CUMULATIVE(Name, kKind)                                                         \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {  \
    return InferCumulative(graph, op);                                                  \
  }                                                                                     \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index) { \
    return DefineCumulative(builder, op, index, kKind);                                 \
  }                                                                                     \
  ir::Value* Decompose##Name(ir::Builder& builder, const ir::Op& op) { return DecomposeCumulative(builder, op, kKind); }
CUMULATIVE(Cumsum, ReduceKind::kSum)
CUMULATIVE(Cumprod, ReduceKind::kProd)
#undef CUMULATIVE

}  // namespace hir::fusion
