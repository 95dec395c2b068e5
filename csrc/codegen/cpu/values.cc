// Expressions and elements as instructions, each computed once, as far out as it can be.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

using ir::Expr;
using ir::ExprKind;

namespace {
constexpr uint64_t kRowBit = uint64_t{1} << 63;

// Whether a NaN that it makes on floats is hardware's, or has the payload of an operand: no call of the C library.
bool KeepsPayloads(fusion::Prim prim) {
  using fusion::Prim;
  static constexpr Prim kSuch[] = {Prim::kAdd,  Prim::kSub, Prim::kMul,  Prim::kDiv,  Prim::kMin,
                                   Prim::kMax,  Prim::kNeg, Prim::kAbs,  Prim::kExp,  Prim::kLog,
                                   Prim::kTanh, Prim::kErf, Prim::kSqrt, Prim::kRsqrt};
  return std::ranges::find(kSuch, prim) != std::end(kSuch);
}
}  // namespace

// --- where code goes
// -------------------------------------------------------------------------------------------------

uint64_t Emitter::VariablesOf(const Expr* expr) {
  const auto [at, added] = expr_variables_.try_emplace(expr, 0);
  if (!added) return at->second;
  uint64_t variables = 0;
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable >= 0) variables = BitOf(variable);
    const auto data = data_.find(std::string(expr->symbol));
    if (data != data_.end()) variables = VariablesOf(data->second.element) | VariablesOf(data->second.guard);
  }
  for (const Expr* arg : expr->args) variables |= VariablesOf(arg);
  return expr_variables_[expr] = variables;
}

uint64_t Emitter::VariablesOf(const Element* element) {
  const auto known = element_variables_.find(element);
  if (known != element_variables_.end()) return known->second;
  uint64_t variables = 0;
  if (element->kind == Element::Kind::kIndex) variables = BitOf(static_cast<int>(element->integer));
  const auto result = results_.find(element->value);
  if (element->kind == Element::Kind::kLoad && result != results_.end()) {
    variables = kRowBit;
    if (region_->columns) variables |= BitOf(region_->columns->variable);
  } else if (const Expr* expr = math_.ToExpr(element)) {
    variables = VariablesOf(expr);  // Of what is left after simplifying.
  } else {
    for (const Element* arg : element->args) variables |= VariablesOf(arg);
  }
  return element_variables_[element] = variables;
}

uint64_t Emitter::VariablesOf(int guard) {
  uint64_t variables = 0;
  for (; guard != 0; guard = guards_[static_cast<size_t>(guard)].parent) {
    variables |= VariablesOf(guards_[static_cast<size_t>(guard)].condition);
  }
  return variables;
}

size_t Emitter::LevelOf(uint64_t variables) const {
  size_t level = (variables & kRowBit) != 0 ? row_level_ : 0;
  for (size_t i = 0; i < region_variables_.size(); ++i) {
    if (((variables >> i) & 1) == 0) continue;
    const int at = variable_level_[static_cast<size_t>(region_variables_[i])];
    HIR_CHECK(at >= 0);
    level = std::max(level, static_cast<size_t>(at));
  }
  return level;
}

// Code of level k goes into the loop's body while it is the innermost one, else in front of the loop in it.
std::string& Emitter::CodeAt(size_t level) {
  return level + 1 >= levels_.size() ? levels_.back().body : levels_[level + 1].before;
}
Emitter::Memo& Emitter::MemoAt(size_t level) {
  return level + 1 >= levels_.size() ? levels_.back().body_memo : levels_[level + 1].before_memo;
}
const V* Emitter::Find(const Key& key, size_t level) const {
  const auto in_body = levels_[level].body_memo.find(key);
  if (in_body != levels_[level].body_memo.end()) return &in_body->second;
  if (level + 1 >= levels_.size()) return nullptr;
  const auto before = levels_[level + 1].before_memo.find(key);
  return before == levels_[level + 1].before_memo.end() ? nullptr : &before->second;
}

// --- expressions
// -----------------------------------------------------------------------------------------------------

V Emitter::EmitExpr(const Expr* expr) {
  if (expr->IsConst()) return IntConstant(Ty::kI64, expr->value);
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (const auto data = data_.find(std::string(expr->symbol)); data != data_.end())
      return EmitElement(data->second.element, data->second.guard);
    if (variable < 0) return symbols_.at(expr->symbol);
    return lanes_.variable == variable ? lanes_.first : variable_value_.at(variable);
  }
  const size_t level = LevelOf(VariablesOf(expr));
  const Key key = {expr, 0, 0};
  if (const V* known = Find(key, level)) return *known;
  V value;
  if (expr->kind == ExprKind::kAdd) {
    // The terms that vary least first, so that sums of them leave the inner loops.
    std::vector<const Expr*> terms(expr->args.begin(), expr->args.end());
    std::ranges::stable_sort(terms, {}, [&](const Expr* term) { return LevelOf(VariablesOf(term)); });
    const Expr* sum = terms[0];
    value = EmitExpr(sum);
    for (size_t i = 1; i <= terms.size(); ++i) {
      const bool last = i == terms.size();
      if (last && expr->value == 0) break;
      const Expr* term = last ? pool_.Const(expr->value) : terms[i];
      sum = pool_.Add(sum, term);
      const size_t at = LevelOf(VariablesOf(sum));
      if (const V* known = Find({sum, 0, 0}, at)) {
        value = *known;
        continue;
      }
      const V right = EmitExpr(term);
      value = writer_.Binary(CodeAt(at), "add", value, right);
      MemoAt(at)[{sum, 0, 0}] = value;
    }
    return value;
  }
  std::vector<V> args;
  for (const Expr* arg : expr->args) args.push_back(EmitExpr(arg));
  value = EmitExprNode(CodeAt(level), *expr, args);
  MemoAt(level)[key] = value;
  return value;
}

// One operation on all lanes of `args`.
V Emitter::EmitExprNode(std::string& code, const Expr& expr, const std::vector<V>& args) {
  const int lanes = args[0].lanes;
  const auto constant = [&](int64_t value) { return IntConstant(Ty::kI64, value, lanes); };
  switch (expr.kind) {
    case ExprKind::kMul: {
      V product = args[0];
      for (size_t i = 1; i < args.size(); ++i) product = writer_.Binary(code, "mul", product, args[i]);
      return expr.value == 1 ? product : writer_.Binary(code, "mul", product, constant(expr.value));
    }
    case ExprKind::kAdd: {
      V sum = args[0];
      for (size_t i = 1; i < args.size(); ++i) sum = writer_.Binary(code, "add", sum, args[i]);
      return expr.value == 0 ? sum : writer_.Binary(code, "add", sum, constant(expr.value));
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const V less = writer_.Compare(code, "slt", args[0], args[1]);
      return expr.kind == ExprKind::kMin ? writer_.Select(code, less, args[0], args[1])
                                         : writer_.Select(code, less, args[1], args[0]);
    }
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kCeilDiv: {
      // Code in front of a loop may run for empty tensors: nothing divides by 0.
      V divisor = args[1];
      if (!expr.args[1]->IsConst()) divisor = writer_.Intrinsic(code, "smax", {divisor, constant(1)});
      V dividend = args[0];
      if (expr.kind == ExprKind::kCeilDiv) {
        const V more = writer_.Binary(code, "sub", divisor, constant(1));
        dividend = writer_.Binary(code, "add", dividend, more);
      }
      if (math_.NonNegative(expr.args[0])) {
        return writer_.Binary(code, expr.kind == ExprKind::kMod ? "urem" : "udiv", dividend, divisor);
      }
      const V remainder = writer_.Binary(code, "srem", dividend, divisor);
      const V below = writer_.Compare(code, "slt", remainder, constant(0));
      if (expr.kind == ExprKind::kMod) {
        const V wrapped = writer_.Binary(code, "add", remainder, divisor);
        return writer_.Select(code, below, wrapped, remainder);
      }
      const V quotient = writer_.Binary(code, "sdiv", dividend, divisor);
      const V lower = writer_.Binary(code, "sub", quotient, constant(1));
      return writer_.Select(code, below, lower, quotient);
    }
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

V Emitter::EmitExprLanes(const Expr* expr) {
  if (!Varies(VariablesOf(expr))) return writer_.Splat(Here(), EmitExpr(expr), lanes_.count);
  if (const auto affine = SplitLanes(expr); affine && !Varies(VariablesOf(affine->stride))) {
    const V first = writer_.Splat(Here(), EmitExpr(expr), lanes_.count);
    const V stride = writer_.Splat(Here(), EmitExpr(affine->stride), lanes_.count);
    const V lane = lanes_.paired ? EmitPairedIota() : writer_.Iota(lanes_.count);
    const V steps = affine->stride->IsConst(1) ? lane : writer_.Binary(Here(), "mul", lane, stride);
    return writer_.Binary(Here(), "add", first, steps);
  }
  if (expr->kind == ExprKind::kSymbol)  // Data.
    return writer_.Splat(Here(), EmitExpr(expr), lanes_.count);
  std::vector<V> args;
  for (const Expr* arg : expr->args) args.push_back(EmitExprLanes(arg));
  return EmitExprNode(Here(), *expr, args);
}

const Expr* Emitter::DataSymbol(const Element* element, int guard) {
  const std::string name = base::Cat("%data", element->id, ".", guard, ".", epoch_);
  data_[name] = {element, guard};
  return pool_.Symbol(name);
}

bool Emitter::HasVaryingData(const Expr* expr) {
  if (expr->kind == ExprKind::kSymbol) return data_.contains(std::string(expr->symbol)) && Varies(VariablesOf(expr));
  return std::ranges::any_of(expr->args, [this](const Expr* arg) { return HasVaryingData(arg); });
}

std::optional<IndexMath::Affine> Emitter::SplitLanes(const Expr* expr) {
  if (HasVaryingData(expr)) return std::nullopt;
  return math_.Split(expr, lanes_.variable);
}

// --- guards
// ------------------------------------------------------------------------------------------------------------

int Emitter::AddGuard(int parent, const Element* condition, bool holds) {
  for (size_t i = 1; i < guards_.size(); ++i) {
    if (guards_[i].parent == parent && guards_[i].condition == condition && guards_[i].holds == holds) {
      return static_cast<int>(i);
    }
  }
  guards_.push_back({parent, condition, holds});
  return static_cast<int>(guards_.size()) - 1;
}

V Emitter::EmitGuard(int guard) {
  const Guard at = guards_[static_cast<size_t>(guard)];
  const uint64_t variables = VariablesOf(guard);
  const bool varies = Varies(variables);
  const size_t level = varies ? levels_.size() - 1 : LevelOf(variables);
  const Key key = {&nest_, guard, epoch_};
  if (const V* known = Find(key, level)) return *known;
  V condition = EmitElement(at.condition, at.condition->has_load ? at.parent : 0);
  std::string& code = CodeAt(level);
  if (varies) condition = writer_.Splat(code, condition, lanes_.count);
  if (!at.holds) condition = writer_.Binary(code, "xor", condition, IntConstant(Ty::kI1, 1, condition.lanes));
  if (at.parent != 0) {
    V parent = EmitGuard(at.parent);
    if (varies) parent = writer_.Splat(code, parent, lanes_.count);
    condition = writer_.Binary(code, "and", condition, parent);
  }
  MemoAt(level)[key] = condition;
  return condition;
}

// --- elements
// ----------------------------------------------------------------------------------------------------------

V Emitter::EmitElement(const Element* element, int guard) {
  switch (element->kind) {
    case Element::Kind::kFloat: {
      const double value = element->dtype == DType::kFloat32 ? static_cast<float>(element->number) : element->number;
      return FloatConstant(TypeOf(element->dtype), value);
    }
    case Element::Kind::kInt: return IntConstant(TypeOf(element->dtype), element->integer);
    case Element::Kind::kScalar: return scalars_.at(element->value);
    case Element::Kind::kExtent:
    case Element::Kind::kIndex:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kPrim:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: break;
  }
  if (const Expr* expr = math_.ToExpr(element)) return Varies(VariablesOf(expr)) ? EmitExprLanes(expr) : EmitExpr(expr);
  if (!element->has_load) guard = 0;
  const uint64_t variables = VariablesOf(element) | VariablesOf(guard);
  const size_t level = LevelOf(variables);
  const Key key = {element, guard, epoch_};
  if (const V* known = Find(key, level)) return *known;
  const V value = EmitUncached(element, guard, level);
  MemoAt(level)[key] = value;
  return value;
}

V Emitter::EmitUncached(const Element* element, int guard, size_t level) {
  if (IsSaved(element)) return EmitSaved(element, level);
  if (element->kind == Element::Kind::kLoad) return EmitLoad(element, guard, level);
  if (element->kind == Element::Kind::kConvert) {
    if (const std::optional<V> widened = EmitWidenedPairs(element, guard)) return *widened;
    if (const std::optional<V> rounded = EmitRounded(element, guard, level)) return *rounded;
    const bool to_16_bits = element->dtype == DType::kFloat16 || element->dtype == DType::kBFloat16;
    if (to_16_bits && element->args[0]->dtype == DType::kFloat32 && IsWidened(element->args[0], element->dtype)) {
      return EmitNarrow(element->args[0], element->dtype, guard);
    }
    const V x = EmitElement(element->args[0], guard);
    const bool plain = element->dtype == DType::kBFloat16 && element->args[0]->dtype == DType::kFloat32 &&
                       HasShortPayload(element->args[0]);
    if (plain) return EmitRoundToBFloat16(writer_, CodeAt(level), x);
    return EmitConvert(writer_, CodeAt(level), element->args[0]->dtype, element->dtype, x);
  }
  HIR_CHECK(element->kind == Element::Kind::kPrim);
  if (element->prim == fusion::Prim::kSelect) {
    return EmitSelect(element, guard, level, [this](const Element* e, int g) { return EmitElement(e, g); });
  }
  std::vector<V> args;
  int lanes = 1;
  for (const Element* arg : element->args) {
    args.push_back(EmitElement(arg, guard));
    lanes = std::max(lanes, args.back().lanes);
  }
  std::string& code = CodeAt(level);
  for (V& arg : args) arg = writer_.Splat(code, arg, lanes);
  return EmitPrim(writer_, code, element->prim, element->args[0]->dtype, args);
}

// float32 of bfloat16 of float32, which stays in its 32 bits; nothing where `element` is something else.
std::optional<V> Emitter::EmitRounded(const Element* element, int guard, size_t level) {
  const Element* narrow = element->args[0];
  if (element->dtype != DType::kFloat32 || narrow->kind != Element::Kind::kConvert ||
      narrow->dtype != DType::kBFloat16 || narrow->args[0]->dtype != DType::kFloat32 || IsSaved(narrow)) {
    return std::nullopt;
  }
  const Element* wide = narrow->args[0];
  const V x = EmitElement(wide, guard);
  if (IsWidened(wide, DType::kBFloat16)) return x;
  std::string& code = CodeAt(level);
  const V bits = EmitBFloat16Bits(writer_, code, x, HasShortPayload(wide));
  const V upper = writer_.Binary(code, "and", bits, IntConstant(Ty::kI32, 0xffff0000, x.lanes));
  return writer_.CastTo(code, "bitcast", upper, Ty::kF32);
}

V Emitter::EmitSelect(const Element* element, int guard, size_t level,
                      const std::function<V(const Element*, int)>& side) {
  const Element* condition = element->args[0];
  if (const std::optional<bool> decided = math_.Decide(condition)) return side(element->args[*decided ? 1 : 2], guard);
  // Conditions on indices say which loads are allowed; of most conditions on data both sides are elements that exist.
  const bool guards = math_.GuardsSides(element);
  const V chosen = EmitElement(condition, condition->has_load ? guard : 0);
  const V yes = side(element->args[1], guards && element->args[1]->has_load ? AddGuard(guard, condition, true) : guard);
  const V no = side(element->args[2], guards && element->args[2]->has_load ? AddGuard(guard, condition, false) : guard);
  const int lanes = std::max({chosen.lanes, yes.lanes, no.lanes});
  std::string& code = CodeAt(level);
  const V all = writer_.Splat(code, chosen, lanes), a = writer_.Splat(code, yes, lanes);
  return writer_.Select(code, all, a, writer_.Splat(code, no, lanes));
}

// Whether a NaN of `element`, float32, has no bits below those of bfloat16: hardware makes NaNs so, and arithmetic
// keeps the payload of an operand. Rounding the bits of such a NaN leaves it one.
bool Emitter::HasShortPayload(const Element* element) {
  const auto known = has_short_payload_.find(element);
  if (known != has_short_payload_.end()) return known->second;
  bool is_short = false;
  const auto all = [&](size_t first) {
    return std::ranges::all_of(element->args.subspan(first), [&](const Element* arg) { return HasShortPayload(arg); });
  };
  if (element->kind == Element::Kind::kFloat) {
    is_short = element->number == element->number;
  } else if (element->kind == Element::Kind::kConvert) {
    const DType from = element->args[0]->dtype;
    is_short = from == DType::kBFloat16 || !IsFloat(from);
  } else if (element->kind == Element::Kind::kLoad) {
    const auto result = results_.find(element->value);
    is_short = result != results_.end() && HasShortPayload(result->second.accumulator->body);
  } else if (element->kind == Element::Kind::kPrim && element->dtype == DType::kFloat32) {
    is_short = KeepsPayloads(element->prim) ? all(0) : element->prim == fusion::Prim::kSelect && all(1);
  }
  return has_short_payload_[element] = is_short;
}

// Whether `element`, float32, holds nothing but values of the 16-bit type `dtype`: widened ones, chosen among.
bool Emitter::IsWidened(const Element* element, DType dtype) const {
  if (element->kind == Element::Kind::kConvert) return element->args[0]->dtype == dtype;
  if (element->kind == Element::Kind::kFloat) return RoundTo(dtype, element->number) == element->number;
  return element->kind == Element::Kind::kPrim && element->prim == fusion::Prim::kSelect &&
         IsWidened(element->args[1], dtype) && IsWidened(element->args[2], dtype);
}

// Such an element in its 16 bits, without rounding.
V Emitter::EmitNarrow(const Element* element, DType dtype, int guard) {
  if (element->kind == Element::Kind::kConvert) return EmitElement(element->args[0], guard);
  if (element->kind == Element::Kind::kFloat) {
    const auto value = static_cast<float>(element->number);
    return IntConstant(Ty::kI16, dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value));
  }
  const size_t level = LevelOf(VariablesOf(element) | VariablesOf(guard));
  return EmitSelect(element, guard, level, [&](const Element* e, int g) { return EmitNarrow(e, dtype, g); });
}

}  // namespace hir::codegen::cpu
