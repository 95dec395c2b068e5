// Conditions on indices and values of elements, each computed once, as far out as it can be.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/emitter.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Prim;
using ir::ExprKind;

// --- conditions ------------------------------------------------------------------------------------------------

bool Emitter::Divisible(const ir::Expr* expr, int64_t by) {
  if (by == 1) return true;
  if (expr->IsConst()) return expr->value % by == 0;
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable >= 0) return variable == vector_ && lanes_ % by == 0;
  } else if (expr->kind == ExprKind::kMin || expr->kind == ExprKind::kMax || expr->kind == ExprKind::kMod) {
    return Divisible(expr->args[0], by) && Divisible(expr->args[1], by);
  } else if (expr->kind == ExprKind::kAdd) {
    if (expr->value % by != 0) return false;
    return std::ranges::all_of(expr->args, [&](const ir::Expr* term) { return Divisible(term, by); });
  } else if (expr->kind == ExprKind::kMul) {
    if (expr->value % by == 0) return true;
    const ir::Expr* symbols = pool_.Const(expr->value);
    for (const ir::Expr* atom : expr->args) {
      if (VarsOf(atom) != 0 && atom->kind == ExprKind::kSymbol && VariableOf(atom->symbol) == vector_ &&
          lanes_ % by == 0)
        return true;
      if (VarsOf(atom) == 0) symbols = pool_.Mul(symbols, atom);
    }
    if (symbols->IsConst()) return false;
    expr = symbols;
  }
  if (VarsOf(expr) != 0 || !MayDivide(expr, by)) return false;
  if (!probing_) Require(Cat(SymbolText(expr), " % ", by, " == 0"));
  return true;
}

// A symbol's size is told from others by what VectorOfSize says of it alone: one text is for all that are alike.
bool Emitter::MayDivide(const ir::Expr* expr, int64_t by) const {
  if (options_.sizes == nullptr) return true;
  const bool is_alone = expr->kind == ExprKind::kSymbol;
  const auto value = ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto known = options_.sizes->find(std::string(symbol));
    if (known == options_.sizes->end()) return std::nullopt;
    return is_alone ? VectorOfSize(known->second) : known->second;
  });
  return !value.ok() || *value % by == 0;
}

// Whether an index condition has one answer for all lanes of a vector: its two sides differ by +-1 times the vector
// variable and a multiple of the lanes, on the side of the comparison where the first lane decides.
bool Emitter::IsUniform(const Element* condition) {
  const uint64_t vars = VarsOf(condition);
  if (!IsLane(vars) && (vars & kLaneBit) == 0) return true;
  if (condition->kind != Element::Kind::kPrim) return false;
  const Prim prim = condition->prim;
  if (prim == Prim::kAnd || prim == Prim::kOr || prim == Prim::kNot)
    return std::ranges::all_of(condition->args, [&](const Element* arg) { return IsUniform(arg); });
  const bool is_order = prim == Prim::kLt || prim == Prim::kLe || prim == Prim::kGt || prim == Prim::kGe;
  if (!is_order) return false;
  const ir::Expr* a = math_.ToExpr(condition->args[0]);
  const ir::Expr* b = math_.ToExpr(condition->args[1]);
  if (a == nullptr || b == nullptr) return false;
  const bool is_greater = prim == Prim::kGt || prim == Prim::kLe;  // Of b < a.
  const auto split = math_.Split(is_greater ? pool_.Sub(b, a) : pool_.Sub(a, b), vector_);
  return split && split->stride->IsConst(1) && Divisible(split->base, lanes_);
}

bool Emitter::IsUniformGuard(int guard) {
  for (; guard != 0; guard = guards_[static_cast<size_t>(guard)].parent) {
    if (!IsUniform(guards_[static_cast<size_t>(guard)].condition)) return false;
  }
  return true;
}

std::string Emitter::ConditionText(const Element* element) {
  if (element->kind == Element::Kind::kInt) return IntText(DType::kBool, element->integer);
  const bool is_lane = IsLane(VarsOf(element)) && !IsUniform(element);
  const size_t level = LevelOf(VarsOf(element), is_lane);
  const Key key = {element, -2, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::vector<std::string> args;
  const bool compares = fusion::IsComparison(element->prim);
  for (const Element* arg : element->args) {
    args.push_back(compares ? ExprText(math_.ToExpr(arg), is_lane) : ConditionText(arg));
  }
  return Named(key, level, "bool", PrimText(element->prim, compares ? DType::kInt64 : DType::kBool, args, false));
}

int Emitter::AddGuard(int parent, const Element* condition, bool holds) {
  const Guard guard = {parent, condition, holds};
  const auto at = std::find(guards_.begin() + 1, guards_.end(), guard);
  if (at != guards_.end()) return static_cast<int>(at - guards_.begin());
  guards_.push_back(guard);
  return static_cast<int>(guards_.size()) - 1;
}

std::string Emitter::GuardText(int guard) {
  const Guard at = guards_[static_cast<size_t>(guard)];
  const bool is_lane = !IsUniformGuard(guard);
  const size_t level = LevelOf(VarsOf(guard), is_lane);
  const Key key = {&guards_, guard, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::string text =
      Cat(at.holds ? "" : "!",
          math_.IsIndexCondition(at.condition) ? ConditionText(at.condition) : ValueText(at.condition, at.parent));
  if (at.parent != 0) text = Cat(GuardText(at.parent), " && ", text);
  return Named(key, level, "bool", text);
}

// --- values ----------------------------------------------------------------------------------------------------

std::string Emitter::ValueText(const Element* element, int guard) {
  switch (element->kind) {
    case Element::Kind::kFloat: return FloatText(element->dtype, element->number);
    case Element::Kind::kInt: return IntText(element->dtype, element->integer);
    case Element::Kind::kScalar: return scalars_.at(element->value);
    case Element::Kind::kExtent:
    case Element::Kind::kIndex:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kPrim:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: break;
  }
  if (element->kind == Element::Kind::kLoad) {
    const auto result = results_.find(element->value);
    if (result != results_.end()) return result->second.text;
    const auto scalar = scalar_loads_.find(element);
    if (scalar != scalar_loads_.end()) return scalar->second;
  }
  if (const ir::Expr* expr = math_.ToExpr(element)) return Cat("((i64)", ExprText(expr, IsLane(VarsOf(expr))), ")");
  if (math_.IsIndexCondition(element)) return ConditionText(element);
  if (!element->has_load) guard = 0;
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    if (const std::optional<bool> decided = math_.Decide(element->args[0]))
      return ValueText(element->args[*decided ? 1 : 2], guard);
  }
  const uint64_t vars = VarsOf(element) | VarsOf(guard);
  // A guard that all lanes share does not make a value one of each lane: the address of a pack may need it.
  const bool is_lane = IsLane(VarsOf(element)) || !IsUniformGuard(guard);
  const size_t level = LevelOf(vars, is_lane);
  const Key key = {element, guard, is_lane};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  if (is_lane && LeavesRows(element, guard, vars)) return InFrontOfRows(element, LevelOf(vars, false));
  const std::string_view type = TypeText(element->dtype);
  if (element->kind == Element::Kind::kLoad) return Named(key, level, type, LoadValue(element, guard));
  if (element->kind == Element::Kind::kConvert) {
    if (IsExact(element->args[0], element->dtype)) {
      const std::string exact = ValueText(element->args[0], guard);
      levels_[level].memo[key] = exact;
      return exact;
    }
    return Named(key, level, type,
                 ConvertText(element->args[0]->dtype, element->dtype, ValueText(element->args[0], guard)));
  }
  HIR_CHECK(element->kind == Element::Kind::kPrim);
  return PrimValue(element, key, level);
}

std::vector<std::string> Emitter::Arguments(const Element* element, int guard) {
  std::vector<std::string> args;
  if (element->prim == Prim::kSelect) {
    // Conditions on indices say which loads are allowed; of most conditions on data both sides are elements that exist.
    const Element* condition = element->args[0];
    const bool guards = math_.GuardsSides(element);
    const bool on_indices = math_.IsIndexCondition(condition);
    if (on_indices) PairLoads(element, guard);
    args.push_back(on_indices ? ConditionText(condition) : ValueText(condition, guard));
    for (const bool holds : {true, false}) {
      const Element* side = element->args[holds ? 1 : 2];
      args.push_back(ValueText(side, guards && side->has_load ? AddGuard(guard, condition, holds) : guard));
    }
  } else {
    for (const Element* arg : element->args) args.push_back(ValueText(arg, guard));
  }
  return args;
}

std::string Emitter::PrimValue(const Element* element, const Key& key, size_t level) {
  const int guard = key.guard;
  const std::string_view type = TypeText(element->dtype);
  const std::vector<std::string> args = Arguments(element, guard);
  const DType dtype = element->args.back()->dtype;
  if (element->prim == Prim::kPow) {
    if (const std::string text = PowerText(element, args[0]); !text.empty()) return Named(key, level, type, text);
  }
  if (options_.fast && element->prim == Prim::kDiv && dtype == DType::kFloat32) {
    // By what varies less: one reciprocal for many elements.
    const Element* divisor = element->args[1];
    const uint64_t own = VarsOf(divisor) | VarsOf(divisor->has_load ? guard : 0);
    const size_t outer = LevelOf(own, IsLane(own));
    if (outer < level) {
      const Key reciprocal = {divisor, -3 - guard, IsLane(own)};
      const auto made = levels_[outer].memo.find(reciprocal);
      const std::string name =
          made != levels_[outer].memo.end() ? made->second : Named(reciprocal, outer, "float", Cat("1.0f / ", args[1]));
      return Named(key, level, type, Cat(args[0], " * ", name));
    }
  }
  return Named(key, level, type, PrimText(element->prim, dtype, args, options_.fast));
}

// Arithmetic on what stays the same from row to row; loads stay packed, which takes fewer registers.
bool Emitter::LeavesRows(const Element* element, int guard, uint64_t vars) const {
  if (inner_rows_ < 0 || guard != 0 || lane_level_ == 0 || (vars & (kRowBit | kLaneBit)) != 0) return false;
  const auto row = variable_level_.find(inner_rows_);
  if (row == variable_level_.end() || row->second >= levels_.size() || row->second >= lane_level_) return false;
  if ((vars & BitOf(inner_rows_)) != 0 || LevelOf(vars, false) >= row->second) return false;
  const Element* inner = element;
  while (inner->kind == Element::Kind::kConvert) inner = inner->args[0];
  return inner->kind == Element::Kind::kPrim;
}

std::string Emitter::InFrontOfRows(const Element* element, size_t level) {
  const Key key = {element, -4, true};
  const auto known = levels_[level].memo.find(key);
  if (known != levels_[level].memo.end()) return known->second;
  std::vector<Level> inner(std::make_move_iterator(levels_.begin() + static_cast<std::ptrdiff_t>(level) + 1),
                           std::make_move_iterator(levels_.end()));
  levels_.resize(level + 1);
  const size_t lane_level = lane_level_;
  const int rows = inner_rows_;
  inner_rows_ = -1;
  const std::string array = NewName("h");
  Line(TypeText(element->dtype), " ", array, "[", lanes_, "];");
  Lanes([&] {
    const std::string value = ValueText(element, 0);
    Line(array, "[e] = ", value, ";");
  });
  inner_rows_ = rows;
  lane_level_ = lane_level;
  std::move(inner.begin(), inner.end(), std::back_inserter(levels_));
  const std::string text = Cat(array, "[e]");
  levels_[level].memo[key] = text;
  return text;
}

// Whether `element`, float32, holds a value of the 16-bit type `dtype`: a widened one, its negative, one of two.
bool Emitter::IsExact(const Element* element, DType dtype) const {
  if (element->dtype != DType::kFloat32 || (dtype != DType::kFloat16 && dtype != DType::kBFloat16)) return false;
  if (element->kind == Element::Kind::kConvert) return element->args[0]->dtype == dtype;
  if (element->kind == Element::Kind::kFloat) return RoundTo(dtype, element->number) == element->number;
  if (element->kind != Element::Kind::kPrim) return false;
  const auto exact = [&](const Element* arg) { return arg->dtype == DType::kBool || IsExact(arg, dtype); };
  const Prim prim = element->prim;
  return (prim == Prim::kNeg || prim == Prim::kAbs || prim == Prim::kSelect || prim == Prim::kMin ||
          prim == Prim::kMax) &&
         std::ranges::all_of(element->args, exact);
}

// Small powers as products; empty for others.
std::string Emitter::PowerText(const Element* element, const std::string& base) {
  const Element* exponent = element->args[1];
  if (element->prim != Prim::kPow || exponent->kind != Element::Kind::kFloat) return {};
  if (exponent->number == 1) return base;
  if (exponent->number == 2) return Cat("(", base, " * ", base, ")");
  if (exponent->number == 3) return Cat("(", base, " * ", base, " * ", base, ")");
  return {};
}

}  // namespace hir::codegen::gpu
