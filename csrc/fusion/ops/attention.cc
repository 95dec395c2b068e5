// Attention and its gradients. Queries q[..., m, d], keys k[..., n, d] and values v[..., n, e] make scores
// s[..., m, n] = scale q k, less infinity where the mask or causality says so, and weights p = softmax(s) along n;
// the values are p v, lse the logarithm of what the softmax divides by. The gradients make p again from lse.
//
// Every axis of an operand but the leading ones, which broadcast, plays a role; the same in all operands and the
// result. What a result has no role for is whole on each rank, or reduced.
#include "csrc/fusion/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/fusion/grouped.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/ops/sequence.h"

namespace hir::fusion {
namespace {

using base::Cat;

enum class Role : uint8_t { kQuery, kKey, kSize, kOut };  // m, n, d, e.
using Roles = std::vector<Role>;

// The axes of an operand or a result behind its leading ones, with its name for people.
struct Form {
  std::string_view name;
  Roles roles;
};

const Form kQ = {"q", {Role::kQuery, Role::kSize}};
const Form kK = {"k", {Role::kKey, Role::kSize}};
const Form kV = {"v", {Role::kKey, Role::kOut}};
const Form kMask = {"mask", {Role::kQuery, Role::kKey}};
const Form kGradient = {"gradient", {Role::kQuery, Role::kOut}};
const Form kLse = {"lse", {Role::kQuery}};
const Form kValues = {"values", {Role::kQuery, Role::kOut}};

bool IsGradient(const ir::Op& op) { return CodeOf(op) == FusionOp::kAttentionGrad; }
size_t NumForms(const ir::Op& op) { return IsGradient(op) ? 6 : 3; }
const Form& FormOf(const ir::Op& op, size_t operand) {
  static const Form* const kForms[] = {&kQ, &kK, &kV, &kGradient, &kLse, &kValues};
  return operand < NumForms(op) ? *kForms[operand] : kMask;
}

// The result's, and the role that it is a sum over.
struct ResultForm {
  const Form* form = nullptr;
  std::optional<Role> summed = {};
};

std::span<const ResultForm> ResultsOf(const ir::Op& op) {
  static const ResultForm kForward[] = {{&kValues}, {&kLse}};
  static const ResultForm kBackward[] = {{&kQ, Role::kKey}, {&kK, Role::kQuery}, {&kV, Role::kQuery}};
  if (IsGradient(op)) return kBackward;
  return kForward;
}

const ResultForm& ResultOf(const ir::Op& op) {
  const auto results = ResultsOf(op);
  const auto found = std::ranges::find(results, op.Name("result"), [](const ResultForm& r) { return r.form->name; });
  return found == results.end() ? results.front() : *found;
}

size_t NumLeading(const ir::Op& op, size_t operand) {
  return ir::ValueAxes(*op.operands[operand]->type).size() - FormOf(op, operand).roles.size();
}

// --- types ---

Status CheckAttentionTypes(const ir::Op& op) {
  const DType dtype = op.operands[0]->type->dtype;
  if (!IsFloat(dtype)) {
    return InvalidArgument(
        Cat("%", op.operands[0]->name, " is ", DTypeName(dtype), "; queries are floats: cast them first"));
  }
  for (size_t i = 1; i < op.operands.size(); ++i) {
    const ir::Value& value = *op.operands[i];
    const Form& form = FormOf(op, i);
    const bool is_mask = &form == &kMask;
    const DType wanted = &form == &kLse ? ComputeDType(dtype) : dtype;
    if (is_mask ? value.type->dtype == DType::kBool || IsFloat(value.type->dtype) : value.type->dtype == wanted)
      continue;
    if (is_mask) {
      return InvalidArgument(Cat("%", value.name, " is ", DTypeName(value.type->dtype),
                                 "; a mask is of bools, true where a key takes part, or of floats that are added"));
    }
    return InvalidArgument(Cat("%", value.name, " is ", DTypeName(value.type->dtype), "; with queries of ",
                               DTypeName(dtype), " ", form.name, " is ", DTypeName(wanted)));
  }
  return {};
}

Status InferAttention(ir::Graph& graph, ir::Op& op) {
  const size_t count = NumForms(op);
  if (op.operands.size() != count && op.operands.size() != count + 1) {
    return InvalidArgument(Cat(op.operands.size(), " operands; it takes q, k, v",
                               IsGradient(op) ? ", gradient, lse, values" : "", " and perhaps a mask"));
  }
  if (ResultOf(op).form->name != op.Name("result")) {
    return InvalidArgument(
        Cat("result is ", IsGradient(op) ? "q, k or v" : "values or lse", ", not ", op.Name("result")));
  }
  if (!std::isfinite(op.Float("scale"))) return InvalidArgument(Cat("scale=", op.Float("scale"), " is not finite"));
  std::vector<ShapedOperand> leading;
  std::array<const ir::Expr*, 4> extents = {};
  std::array<std::string, 4> names;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, static_cast<int>(i)));
    const Form& form = FormOf(op, i);
    const ir::Value& value = *op.operands[i];
    if (axes.size() < form.roles.size()) {
      return InvalidArgument(Cat("%", value.name, " has ", axes.size(), axes.size() == 1 ? " axis" : " axes", "; ",
                                 form.name, " has ", form.roles.size(), " or more"));
    }
    const size_t batch = axes.size() - form.roles.size();
    for (size_t k = 0; k < form.roles.size(); ++k) {
      const auto role = static_cast<size_t>(form.roles[k]);
      const ir::Axis& axis = axes[batch + k];
      if (extents[role] == nullptr) {
        extents[role] = axis.extent;
        names[role] = AxisName(value, batch + k);
      } else if (&form != &kMask || !IsOne(axis)) {  // A mask stretches.
        HIR_TRY(Unify(graph, extents[role], axis.extent, names[role], AxisName(value, batch + k)));
      }
    }
    axes.resize(batch);
    leading.push_back({&value, std::move(axes)});
  }
  HIR_TRY(CheckAttentionTypes(op));
  HIR_ASSIGN(std::vector<ir::Axis> result, BroadcastAxes(graph, leading));
  const ResultForm& wanted = ResultOf(op);
  for (const Role role : wanted.form->roles) result.push_back({{}, extents[static_cast<size_t>(role)]});
  for (ir::Axis& axis : result) axis.kind = ir::AxisKind::kIteration;  // A library writes all of it.
  if (wanted.summed) result.push_back({ir::AxisKind::kReduction, extents[static_cast<size_t>(*wanted.summed)]});
  const std::span<const ir::Expr* const> offsets = op.Exprs("offset");
  if (offsets.size() != result.size()) {
    return InvalidArgument(
        Cat("offset has ", offsets.size(), " entries; the result has ", result.size(), " axes, reduced ones too"));
  }
  for (const ir::Expr* offset : offsets) HIR_TRY(RequireDivisors(graph, op, offset));
  const DType dtype = op.operands[0]->type->dtype;
  return SetTensor(graph, op, wanted.form == &kLse ? ComputeDType(dtype) : dtype, result);
}

// The result's axis for a role, a reduced one too.
std::optional<size_t> AxisOf(const ir::Op& op, Role role) {
  const ResultForm& result = ResultOf(op);
  const size_t rank = op.results[0]->type->axes.size();
  if (result.summed == role) return rank - 1;
  const auto found = std::ranges::find(result.form->roles, role);
  if (found == result.form->roles.end()) return std::nullopt;
  return rank - result.form->roles.size() - (result.summed ? 1 : 0) +
         static_cast<size_t>(found - result.form->roles.begin());
}

size_t NumLeading(const ir::Op& op) {
  return op.results[0]->type->axes.size() - ResultOf(op).form->roles.size() - (ResultOf(op).summed ? 1 : 0);
}

// Where a rank's part of the axis begins, in the result's entries of `offset`.
const ir::Expr* OffsetOf(ir::ExprPool& pool, const ir::Op& op, Role role) {
  const std::optional<size_t> axis = AxisOf(op, role);
  return axis ? op.Exprs("offset")[*axis] : pool.Const(0);
}

// --- axes ---

void AttentionAxes(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[i]->type);
    const size_t batch = NumLeading(op, i);
    const auto link = [&](size_t axis, size_t to, AxisRelation relation) {
      links.push_back({static_cast<int>(i), static_cast<int>(axis), 0, static_cast<int>(to), relation});
    };
    for (size_t k = 0; k < batch; ++k) {
      const size_t to = NumLeading(op) - batch + k;
      link(k, to, SameOrBroadcast(axes[k], result[to]));
    }
    const Roles& roles = FormOf(op, i).roles;
    for (size_t k = 0; k < roles.size(); ++k) {
      const std::optional<size_t> to = AxisOf(op, roles[k]);
      if (!to) continue;  // A rank needs all of it, whatever part of the result it makes.
      const ir::Axis& axis = axes[batch + k];
      if (roles[k] == Role::kSize) {
        link(batch + k, *to, AxisRelation::kOpaque);  // Scores are sums over it.
      } else if (result[*to].kind == ir::AxisKind::kReduction && !(IsOne(axis) && !IsOne(result[*to]))) {
        link(batch + k, *to, AxisRelation::kContracted);
      } else {
        link(batch + k, *to, SameOrBroadcast(axis, result[*to]));
      }
    }
  }
}

// --- by element ---

class AttentionElements {
 public:
  AttentionElements(ElementBuilder& builder, const ir::Op& op, Index index)
      : builder_(builder),
        op_(op),
        leading_(index.first(NumLeading(op))),
        dtype_(op.operands[0]->type->dtype),
        carried_(ComputeDType(dtype_)) {
    for (const Role role : ResultOf(op).form->roles) at_[static_cast<size_t>(role)] = index[*AxisOf(op, role)];
  }

  const Element* Values() {
    const Element* most = Most();
    const Element* sum = OverKeys(ReduceKind::kSum, [&] { return Mul(Weight(most), Operand(2)); });
    const Element* total = OverKeys(ReduceKind::kSum, [&] { return Weight(most); });
    const Element* value = builder_.Apply(Prim::kDiv, {sum, total});
    return builder_.Convert(dtype_, builder_.Select(IsNothing(most), Number(0), value));
  }
  const Element* Lse() {
    const Element* most = Most();
    const Element* total = OverKeys(ReduceKind::kSum, [&] { return Weight(most); });
    return builder_.Apply(Prim::kAdd, {most, builder_.Apply(Prim::kLog, {total})});
  }
  const Element* Gradient() {
    const std::string_view result = ResultOf(op_).form->name;
    const auto of = [&](const auto& term) {
      return result == "q" ? OverKeys(ReduceKind::kSum, term) : Over(Role::kQuery, ReduceKind::kSum, term);
    };
    if (result == "v") return builder_.Convert(dtype_, of([&] { return Mul(Weight(Operand(4)), Operand(3)); }));
    const Element* sum = of([&] {
      const Element* of_weight = Over(Role::kOut, ReduceKind::kSum, [&] { return Mul(Operand(3), Operand(2)); });
      const Element* mean = Over(Role::kOut, ReduceKind::kSum, [&] { return Mul(Operand(3), Operand(5)); });
      const Element* weight = Weight(Operand(4));
      const Element* of_score = Mul(weight, builder_.Apply(Prim::kSub, {of_weight, mean}));
      return Mul(builder_.Select(builder_.Apply(Prim::kEq, {weight, Number(0)}), Number(0), of_score),
                 Operand(result == "q" ? 1 : 0));
    });
    return builder_.Convert(dtype_, Mul(Number(op_.Float("scale")), sum));
  }

 private:
  const Element* Number(double value) { return builder_.Float(carried_, value); }
  const Element* Mul(const Element* x, const Element* y) { return builder_.Apply(Prim::kMul, {x, y}); }
  const Element* IsNothing(const Element* score) {
    return builder_.Apply(Prim::kEq, {score, Number(-std::numeric_limits<double>::infinity())});
  }

  // The element of an operand at the present place.
  const Element* Operand(size_t i) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op_.operands[i]->type);
    const size_t batch = NumLeading(op_, i);
    std::vector<const Element*> index;
    for (size_t k = 0; k < axes.size(); ++k) {
      const Element* const where =
          k < batch ? leading_[leading_.size() - batch + k] : at_[static_cast<size_t>(FormOf(op_, i).roles[k - batch])];
      index.push_back(IsOne(axes[k]) ? builder_.Int(DType::kInt64, 0) : where);
    }
    const Element* const loaded = builder_.Load(op_.operands[i], index);
    return loaded->dtype == DType::kBool ? loaded : builder_.Convert(carried_, loaded);
  }

  // The reduction over all places along `role` of `term()` there.
  template <typename Term>
  const Element* Over(Role role, ReduceKind kind, const Term& term) {
    const ir::Expr* const extent = ExtentOf(role);
    const int variable = builder_.NewReduceVariables(1);
    const Element*& at = at_[static_cast<size_t>(role)];
    const Element* const before = std::exchange(at, builder_.ReduceIndex(variable));
    const Element* const body = term();
    at = before;
    return builder_.Reduce(kind, variable, {&extent, 1}, body);
  }
  template <typename Term>
  const Element* OverKeys(ReduceKind kind, const Term& term) {
    return Over(Role::kKey, kind, term);
  }
  const ir::Expr* ExtentOf(Role role) const {
    for (size_t i = 0;; ++i) {  // A mask comes last, and its axes may stretch.
      const Roles& roles = FormOf(op_, i).roles;
      const auto found = std::ranges::find(roles, role);
      if (found == roles.end()) continue;
      const auto axis = NumLeading(op_, i) + static_cast<size_t>(found - roles.begin());
      return ir::ValueAxes(*op_.operands[i]->type)[axis].extent;
    }
  }

  const Element* Score() {
    const Element* sum = Over(Role::kSize, ReduceKind::kSum, [&] { return Mul(Operand(0), Operand(1)); });
    const Element* score = Mul(sum, Number(op_.Float("scale")));
    const Element* nothing = Number(-std::numeric_limits<double>::infinity());
    if (HasMask(op_)) {
      const Element* mask = Operand(op_.operands.size() - 1);
      score = mask->dtype == DType::kBool ? builder_.Select(mask, score, nothing)
                                          : builder_.Apply(Prim::kAdd, {score, mask});
    }
    if (op_.Bool("causal"))
      score = builder_.Select(builder_.Apply(Prim::kLe, {Place(Role::kKey), Place(Role::kQuery)}), score, nothing);
    return score;
  }
  const Element* Place(Role role) {
    const Element* at = at_[static_cast<size_t>(role)];
    const std::optional<size_t> axis = AxisOf(op_, role);
    return axis ? builder_.Apply(Prim::kAdd, {at, builder_.Extent(op_.Exprs("offset")[*axis])}) : at;
  }
  const Element* Most() {
    return OverKeys(ReduceKind::kMax, [&] { return Score(); });
  }
  const Element* Weight(const Element* most) {
    const Element* score = Score();
    const Element* weight = builder_.Apply(Prim::kExp, {builder_.Apply(Prim::kSub, {score, most})});
    return builder_.Select(IsNothing(score), Number(0), weight);
  }

  ElementBuilder& builder_;
  const ir::Op& op_;
  const Index leading_;
  std::array<const Element*, 4> at_ = {};  // By role.
  const DType dtype_, carried_;
};

// --- as other ops ---

class AttentionParts {
 public:
  AttentionParts(ir::Builder& builder, const ir::Op& op)
      : builder_(builder), op_(op), dtype_(op.operands[0]->type->dtype), carried_(ComputeDType(dtype_)) {}

  ir::Value* Make() {
    const std::string_view result = ResultOf(op_).form->name;
    if (IsGradient(op_)) return Gradient(result);
    if (IsOfNothing()) {
      std::vector<const ir::Expr*> shape;
      for (const ir::Axis& axis : op_.results[0]->type->axes) shape.push_back(axis.extent);
      return Full(shape, op_.results[0]->type->dtype, result == "lse" ? -std::numeric_limits<double>::infinity() : 0);
    }
    ir::Value* const scores = Scores();
    ir::Value* const most = Reduced("max", scores);
    ir::Value* const weights = Weights(scores, most);
    ir::Value* const total = Reduced("sum", weights);
    if (result == "lse")
      return Stretched(Make("squeeze", {Make("add", {most, Make("log", {total})})}, {LastAxis()}), 1);
    ir::Value* const divided = Make("truediv", {weights, OrNothing(most, total, 1)});
    return Make("matmul", {Cast(divided, dtype_), op_.operands[2]});
  }

 private:
  ir::Value* Make(std::string_view name, std::initializer_list<ir::Value*> operands,
                  std::initializer_list<ir::Attr> attrs = {}) {
    return builder_.Make(name, operands, attrs, Cat(op_.results[0]->name, ".", name));
  }
  ir::Value* Cast(ir::Value* x, DType dtype) {
    return x->type->dtype == dtype ? x : Make("cast", {x}, {{"dtype", DTypeName(dtype)}});
  }
  ir::Value* Number(double value) {
    return builder_.Make("constant", {}, {{"value", value}, {"dtype", DTypeName(carried_)}});
  }
  // Without keys there is no greatest score.
  bool IsOfNothing() const {
    const std::vector<ir::Axis> keys = ir::ValueAxes(*op_.operands[1]->type);
    return keys[keys.size() - 2].extent->IsConst(0);
  }
  ir::Value* Full(const std::vector<const ir::Expr*>& shape, DType dtype, double value) {
    return Make("full", {},
                {{"shape", std::span<const ir::Expr* const>(shape)}, {"value", value}, {"dtype", DTypeName(dtype)}});
  }
  ir::Value* Transposed(ir::Value* x) {
    std::vector<int64_t> order(ir::ValueAxes(*x->type).size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int64_t>(k);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return Make("permute", {x}, {{"dims", std::span<const int64_t>(order)}});
  }
  static ir::Attr LastAxis() {
    static constexpr int64_t kLast[] = {-1};
    return {"axes", std::span<const int64_t>(kLast)};
  }
  ir::Value* Reduced(std::string_view name, ir::Value* x) {
    return Make(name, {x}, {LastAxis(), {"keepdim", true}, {"dtype", std::string_view("null")}});
  }
  // A number of each query, beside its keys.
  ir::Value* Column(ir::Value* x) {
    std::vector<int64_t> flags(ir::ValueAxes(*x->type).size() + 1, 0);
    flags.back() = 1;
    return Make("broadcast", {x}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
  }

  ir::Value* Scores() {
    ir::Value* scores = Make("matmul", {op_.operands[0], Transposed(op_.operands[1])});
    scores = Make("mul", {Cast(scores, carried_), Number(op_.Float("scale"))});
    ir::Value* const nothing = Number(-std::numeric_limits<double>::infinity());
    if (HasMask(op_)) {
      ir::Value* const mask = op_.operands.back();
      scores = mask->type->dtype == DType::kBool ? Make("where", {mask, scores, nothing})
                                                 : Make("add", {scores, Cast(mask, carried_)});
    }
    if (op_.Bool("causal")) {
      const std::vector<ir::Axis> axes = ir::ValueAxes(*scores->type);
      ir::Value* const rows = Places(Role::kQuery, axes[axes.size() - 2].extent, 0);
      ir::Value* const columns = Places(Role::kKey, axes[axes.size() - 1].extent, 1);
      scores = Make("where", {Make("le", {columns, rows}), scores, nothing});
    }
    return scores;
  }
  ir::Value* Places(Role role, const ir::Expr* extent, size_t axis) {
    ir::Value* const places = SequenceAlong(builder_, extent, axis, 2, Cat(op_.results[0]->name, ".place"));
    const ir::Expr* const offset = OffsetOf(builder_.graph().exprs(), op_, role);
    return offset->IsConst(0) ? places : Make("add", {places, Make("extent", {}, {{"value", offset}})});
  }
  // `x`, and `otherwise` of a query without keys.
  ir::Value* OrNothing(ir::Value* most, ir::Value* x, double otherwise) {
    if (!op_.Bool("causal") && !HasMask(op_)) return x;
    ir::Value* const nothing = Make("eq", {most, Number(-std::numeric_limits<double>::infinity())});
    return Make("where", {nothing, Number(otherwise), x});
  }
  ir::Value* Weights(ir::Value* scores, ir::Value* most) {
    return Make("exp", {Make("sub", {scores, OrNothing(most, most, 0)})});
  }

  ir::Value* Gradient(std::string_view result) {
    ir::Value* const weights = Weights(Scores(), Column(op_.operands[4]));
    if (result == "v") return Make("matmul", {Transposed(Stretched(Cast(weights, dtype_), 2)), op_.operands[3]});
    ir::Value* const of_weights = Cast(Make("matmul", {op_.operands[3], Transposed(op_.operands[2])}), carried_);
    ir::Value* const of_values = Make("mul", {Cast(op_.operands[3], carried_), Cast(op_.operands[5], carried_)});
    ir::Value* const less = Make("sub", {of_weights, Reduced("sum", of_values)});
    ir::Value* const of_scores =
        Stretched(Cast(Make("mul", {Make("mul", {weights, less}), Number(op_.Float("scale"))}), dtype_), 2);
    return result == "q" ? Make("matmul", {of_scores, op_.operands[1]})
                         : Make("matmul", {Transposed(of_scores), op_.operands[0]});
  }

  // `x` with all leading axes of the result in front of its last `own` ones, where other operands alone have some:
  // zeros are added that have them, since an axis that is stored once would be another type.
  ir::Value* Stretched(ir::Value* x, size_t own) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*x->type);
    const std::span<const ir::Axis> leading = op_.results[0]->type->axes.first(NumLeading(op_));
    const size_t missing = leading.size() + own - axes.size();
    bool lacks = missing > 0;
    std::vector<const ir::Expr*> shape;
    for (size_t k = 0; k < leading.size(); ++k) {
      lacks |= k >= missing && IsOne(axes[k - missing]) && !IsOne(leading[k]);
      shape.push_back(leading[k].extent);
    }
    if (!lacks) return x;
    shape.resize(leading.size() + own, builder_.graph().exprs().Const(1));
    return Make("add", {x, Full(shape, x->type->dtype, 0)});
  }

  ir::Builder& builder_;
  const ir::Op& op_;
  const DType dtype_, carried_;
};

}  // namespace

Status InferAttention(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferAttention(graph, op);
}
Status InferAttentionGrad(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  return InferAttention(graph, op);
}

void AxesAttention(const ir::Op& op, std::vector<AxisLink>& links) { AttentionAxes(op, links); }
void AxesAttentionGrad(const ir::Op& op, std::vector<AxisLink>& links) { AttentionAxes(op, links); }

const Element* DefineAttention(ElementBuilder& builder, const ir::Op& op, Index index) {
  AttentionElements elements(builder, op, index);
  return ResultOf(op).form == &kLse ? elements.Lse() : elements.Values();
}
const Element* DefineAttentionGrad(ElementBuilder& builder, const ir::Op& op, Index index) {
  return AttentionElements(builder, op, index).Gradient();
}

bool CountsAlong(const ir::Op& op, size_t axis) {
  const auto counts = [](const ir::Attr& attr) { return attr.name == "offset"; };
  if (std::ranges::none_of(op.attrs, counts)) return false;
  if (IsGrouped(CodeOf(op))) return axis == RowAxisOf(op);
  if (!IsAttention(CodeOf(op))) return true;
  return op.Bool("causal") && (axis == AxisOf(op, Role::kQuery) || axis == AxisOf(op, Role::kKey));
}

const ir::Expr* DiagonalOf(ir::ExprPool& pool, const ir::Op& op) {
  return pool.Sub(OffsetOf(pool, op, Role::kQuery), OffsetOf(pool, op, Role::kKey));
}

const ir::Expr* QueriesBegin(ir::ExprPool& pool, const ir::Op& op) { return OffsetOf(pool, op, Role::kQuery); }

std::vector<const ir::Expr*> OffsetOfKeysFrom(ir::ExprPool& pool, const ir::Op& op, const ir::Expr* begin) {
  const std::span<const ir::Expr* const> given = op.Exprs("offset");
  std::vector<const ir::Expr*> offset(given.begin(), given.end());
  if (const std::optional<size_t> keys = AxisOf(op, Role::kKey)) {
    offset[*keys] = pool.Add(offset[*keys], begin);
  } else {  // Only how far queries are from keys counts.
    const std::optional<size_t> queries = AxisOf(op, Role::kQuery);
    offset[*queries] = pool.Sub(offset[*queries], begin);
  }
  return offset;
}

std::optional<int> OperandOfGradient(const ir::Op& op) {
  if (!IsAttention(CodeOf(op)) || !IsGradient(op)) return std::nullopt;
  const std::string_view result = op.Name("result");
  return result == "q" ? 0 : result == "k" ? 1 : 2;
}

bool HasMask(const ir::Op& op) { return op.operands.size() > NumForms(op); }

bool ShareCall(const ir::Op& a, const ir::Op& b) {
  if (&a == &b) return IsAttention(CodeOf(a));
  if (!IsAttention(CodeOf(a)) || a.info != b.info || !std::ranges::equal(a.operands, b.operands)) return false;
  if (a.Name("result") == b.Name("result") || a.Float("scale") != b.Float("scale")) return false;
  if (a.Bool("causal") != b.Bool("causal")) return false;
  const auto starts_alike = [&](Role role) {
    const std::optional<size_t> of_a = AxisOf(a, role), of_b = AxisOf(b, role);
    if (of_a && of_b) return a.Exprs("offset")[*of_a] == b.Exprs("offset")[*of_b];
    const auto is_zero = [&](const ir::Op& op, std::optional<size_t> at) {
      return !at || op.Exprs("offset")[*at]->IsConst(0);
    };
    return is_zero(a, of_a) && is_zero(b, of_b);
  };
  return !a.Bool("causal") || (starts_alike(Role::kQuery) && starts_alike(Role::kKey));
}

bool IsFused(const ir::Op& op) {
  constexpr int64_t kVector = 8, kHeadMax = 128;
  const DType dtype = op.operands[0]->type->dtype;
  if ((dtype != DType::kFloat16 && dtype != DType::kBFloat16) || HasMask(op)) return false;
  for (const size_t operand : {size_t{0}, size_t{2}}) {
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[operand]->type);
    const ir::Expr& size = *axes.back().extent;
    if (!size.IsConst() || size.value < kVector || size.value > kHeadMax || size.value % kVector != 0) return false;
  }
  return true;
}

ir::Value* AttentionAsProducts(ir::Builder& builder, const ir::Op& op) { return AttentionParts(builder, op).Make(); }

}  // namespace hir::fusion
