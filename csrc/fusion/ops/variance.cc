// mean, var, var_sum: sums over axes with the count of elements. Floats keep their type and are summed in f32 or f64;
// integers and bools become f32.
#include "csrc/base/text.h"
#include "csrc/fusion/ops/reduced.h"

namespace hir::fusion {
namespace {

using base::Cat;

DType MomentType(const ir::Op& op) {
  const DType given = op.operands[0]->type->dtype;
  return IsFloat(given) ? given : DType::kFloat32;
}

Status InferMoment(ir::Graph& graph, ir::Op& op) { return InferReduced(graph, op, MomentType(op)); }

// How many elements of the operand go into one of the result.
const ir::Expr* CountOf(ir::ExprPool& pool, const ir::Op& op) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  const ir::Expr* count = pool.Const(1);
  for (const int64_t axis : op.Ints("axes")) count = pool.Mul(count, axes[static_cast<size_t>(axis)].extent);
  return count;
}

// --- by element ---

class MomentElements {
 public:
  MomentElements(ElementBuilder& builder, const ir::Op& op, Index index)
      : builder_(builder), op_(op), index_(index), carried_(ComputeDType(MomentType(op))) {}

  // The sum over the reduced axes of what `of` makes of each element.
  template <typename Of>
  const Element* Sum(const Of& of) {
    const ReducedLoops loops = LoopsOver(builder_, op_, op_.Ints("axes"), index_);
    const Element* x = builder_.Convert(carried_, builder_.Load(op_.operands[0], loops.index));
    return builder_.Reduce(ReduceKind::kSum, loops.first, loops.trips, of(x));
  }
  const Element* Mean() {
    return builder_.Apply(Prim::kDiv, {Sum([](const Element* x) { return x; }), Count(0)});
  }
  const Element* SquaredDeviations() {
    const Element* mean = Mean();
    return Sum([&](const Element* x) {
      const Element* deviation = builder_.Apply(Prim::kSub, {x, mean});
      return builder_.Apply(Prim::kMul, {deviation, deviation});
    });
  }
  // The number of elements less `correction`, at least 0.
  const Element* Count(int64_t correction) {
    const Element* count = builder_.Int(DType::kInt64, 1);
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op_.operands[0]->type);
    for (const int64_t axis : op_.Ints("axes")) {
      const Element* extent = builder_.Extent(axes[static_cast<size_t>(axis)].extent);
      count = builder_.Apply(Prim::kMul, {count, extent});
    }
    count = builder_.Apply(Prim::kSub, {count, builder_.Int(DType::kInt64, correction)});
    count = builder_.Apply(Prim::kMax, {count, builder_.Int(DType::kInt64, 0)});
    return builder_.Convert(carried_, count);
  }
  const Element* Rounded(const Element* x) { return builder_.Convert(MomentType(op_), x); }

 private:
  ElementBuilder& builder_;
  const ir::Op& op_;
  const Index index_;
  const DType carried_;
};

// --- as other ops ---

class MomentParts {
 public:
  MomentParts(ir::Builder& builder, const ir::Op& op) : builder_(builder), op_(op), name_(op.results[0]->name) {}

  // The operand in the type that it is summed in.
  ir::Value* Operand() { return Cast(op_.operands[0], ComputeDType(MomentType(op_)), ".wide"); }
  ir::Value* Sum(ir::Value* x, bool keepdim, std::string_view suffix) {
    return builder_.Make("sum", {x},
                         {{"axes", op_.Ints("axes")}, {"keepdim", keepdim}, {"dtype", std::string_view("null")}},
                         Cat(name_, suffix));
  }
  ir::Value* Mean(ir::Value* x, bool keepdim) {
    ir::Value* sum = Sum(x, keepdim, ".total");
    return builder_.Make("truediv", {sum, Count(0)}, {}, Cat(name_, ".mean"));
  }
  ir::Value* SquaredDeviations(ir::Value* x, bool keepdim) {
    ir::Value* mean = Mean(x, true);
    ir::Value* deviation = builder_.Make("sub", {x, mean}, {}, Cat(name_, ".deviation"));
    ir::Value* square = builder_.Make("mul", {deviation, deviation}, {}, Cat(name_, ".square"));
    return Sum(square, keepdim, ".squares");
  }
  ir::Value* Count(int64_t correction) {
    ir::Value* count =
        builder_.Make("extent", {}, {{"value", CountOf(builder_.graph().exprs(), op_)}}, Cat(name_, ".count"));
    if (correction == 0) return count;
    ir::Value* less = builder_.Make("sub", {count, Constant(correction)});
    return builder_.Make("maximum", {less, Constant(0)});
  }
  ir::Value* Result(ir::Value* x) { return WithoutReductionAxes(builder_, op_, Cast(x, MomentType(op_), ".rounded")); }
  bool keepdim() const { return op_.Bool("keepdim"); }

 private:
  ir::Value* Cast(ir::Value* x, DType dtype, std::string_view suffix) {
    if (x->type->dtype == dtype) return x;
    return builder_.Make("cast", {x}, {{"dtype", DTypeName(dtype)}}, Cat(name_, suffix));
  }
  ir::Value* Constant(int64_t value) {
    return builder_.Make("constant", {}, {{"value", static_cast<double>(value)}, {"dtype", DTypeName(DType::kInt64)}});
  }

  ir::Builder& builder_;
  const ir::Op& op_;
  const std::string name_;
};

}  // namespace

Status InferMean(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) { return InferMoment(graph, op); }
const Element* DefineMean(ElementBuilder& builder, const ir::Op& op, Index index) {
  MomentElements elements(builder, op, index);
  return elements.Rounded(elements.Mean());
}
ir::Value* DecomposeMean(ir::Builder& builder, const ir::Op& op) {
  MomentParts parts(builder, op);
  return parts.Result(parts.Mean(parts.Operand(), parts.keepdim()));
}

Status InferVar(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  constexpr int64_t kLimit = int64_t{1} << 53;
  const int64_t correction = op.Int("correction");
  if (correction < 0 || correction > kLimit)
    return InvalidArgument(Cat("correction=", correction, " is not in [0, 2^53]"));
  return InferMoment(graph, op);
}
const Element* DefineVar(ElementBuilder& builder, const ir::Op& op, Index index) {
  MomentElements elements(builder, op, index);
  const Element* count = elements.Count(op.Int("correction"));
  return elements.Rounded(builder.Apply(Prim::kDiv, {elements.SquaredDeviations(), count}));
}
ir::Value* DecomposeVar(ir::Builder& builder, const ir::Op& op) {
  MomentParts parts(builder, op);
  ir::Value* squares = parts.SquaredDeviations(parts.Operand(), parts.keepdim());
  return parts.Result(builder.Make("truediv", {squares, parts.Count(op.Int("correction"))}));
}

Status InferVarSum(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) { return InferMoment(graph, op); }
const Element* DefineVarSum(ElementBuilder& builder, const ir::Op& op, Index index) {
  MomentElements elements(builder, op, index);
  return elements.Rounded(elements.SquaredDeviations());
}
ir::Value* DecomposeVarSum(ir::Builder& builder, const ir::Op& op) {
  MomentParts parts(builder, op);
  return parts.Result(parts.SquaredDeviations(parts.Operand(), parts.keepdim()));
}

}  // namespace hir::fusion
