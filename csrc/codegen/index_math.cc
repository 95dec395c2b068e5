#include "csrc/codegen/index_math.h"

#include <algorithm>
#include <unordered_set>

#include "csrc/base/check.h"
#include "csrc/codegen/loop_nest.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen {
namespace {

using fusion::Element;
using fusion::Prim;
using ir::Expr;
using ir::ExprKind;

// Of constants and coefficients: no memory has so many elements. What a program computes of larger ones may leave 64
// bits, where integers wrap and expressions do not.
constexpr int64_t kNumberMax = int64_t{1} << 48;
constexpr int kDepthMax = 16;  // Of bounds in bounds: beyond, there is no simple one.

// A sum's terms; `expr` itself when it is none. The constant is left out.
std::vector<const Expr*> SummandsOf(const Expr* expr) {
  if (expr->kind == ExprKind::kAdd) return {expr->args.begin(), expr->args.end()};
  if (expr->IsConst()) return {};
  return {expr};
}
int64_t ConstantOf(const Expr* expr) { return expr->kind == ExprKind::kAdd || expr->IsConst() ? expr->value : 0; }
// A term is coefficient * atoms.
int64_t CoefficientOf(const Expr* term) { return term->kind == ExprKind::kMul ? term->value : 1; }
std::vector<const Expr*> AtomsOf(const Expr* term) {
  if (term->kind == ExprKind::kMul) return {term->args.begin(), term->args.end()};
  return {term};
}

int64_t MagnitudeOf(int64_t value) { return value == INT64_MIN ? INT64_MAX : std::abs(value); }

// The largest magnitude of its constant, of its coefficients, and of 1.
int64_t LargestNumber(const Expr* expr) {
  int64_t largest = std::max<int64_t>(MagnitudeOf(ConstantOf(expr)), 1);
  for (const Expr* term : SummandsOf(expr)) largest = std::max(largest, MagnitudeOf(CoefficientOf(term)));
  return largest;
}

}  // namespace

void IndexMath::SetRange(int variable, const Expr* low, const Expr* high) { ranges_[variable] = {low, high}; }

void IndexMath::WidenRange(int variable, const Expr* low, const Expr* high) {
  const auto [at, is_new] = ranges_.try_emplace(variable, Range{low, high});
  if (is_new) return;
  Range& known = at->second;
  if (!ir::Equal(known.low, low)) known.low = pool_->Min(known.low, low);
  if (!ir::Equal(known.high, high)) known.high = pool_->Max(known.high, high);
}

void IndexMath::ResetRange(int variable, const Expr* low, const Expr* high) {
  SetRange(variable, low, high);
  converted_.clear();
}

const Expr* IndexMath::ToExpr(const Element* element) {
  const auto found = converted_.find(element);
  if (found != converted_.end()) return found->second;
  const Expr* expr = Convert(element);
  converted_[element] = expr;
  return expr;
}

const Expr* IndexMath::Convert(const Element* element) {
  if (element->dtype != DType::kInt64) return nullptr;
  switch (element->kind) {
    case Element::Kind::kInt: return Bounded(pool_->Const(element->integer));
    case Element::Kind::kIndex: return pool_->Symbol(VariableSymbol(static_cast<int>(element->integer)));
    case Element::Kind::kExtent: return pool_->Import(element->extent);
    case Element::Kind::kPrim: break;
    case Element::Kind::kFloat:
    case Element::Kind::kScalar:
    case Element::Kind::kLoad:
    case Element::Kind::kConvert:
    case Element::Kind::kReduce:
    case Element::Kind::kReduceIndex: return nullptr;
  }
  std::vector<const Expr*> args;
  for (const Element* arg : element->args) {
    if (arg->dtype != DType::kInt64) return nullptr;
    args.push_back(ToExpr(arg));
    if (args.back() == nullptr) return nullptr;
  }
  if (element->prim == Prim::kAdd) return Bounded(pool_->Add(args[0], args[1]));
  if (element->prim == Prim::kSub) return Bounded(pool_->Sub(args[0], args[1]));
  if (element->prim == Prim::kNeg) return pool_->Mul(pool_->Const(-1), args[0]);
  if (element->prim == Prim::kMin) return pool_->Min(args[0], args[1]);
  if (element->prim == Prim::kMax) return pool_->Max(args[0], args[1]);
  if (element->prim == Prim::kMul) {
    const bool is_power = HasVariable(args[0]) && HasVariable(args[1]);
    const bool fits = LargestNumber(args[0]) <= kNumberMax / LargestNumber(args[1]);
    return is_power || !fits ? nullptr : pool_->Mul(args[0], args[1]);
  }
  if (element->prim != Prim::kDiv && element->prim != Prim::kRem) return nullptr;
  // Truncation is rounding down of what is not negative.
  const bool is_same = element->of_place || (NonNegative(args[0]) && NonNegative(pool_->Sub(args[1], pool_->Const(1))));
  return is_same ? DivMod(args[0], args[1], element->prim == Prim::kRem) : nullptr;
}

const Expr* IndexMath::Bounded(const Expr* expr) { return LargestNumber(expr) <= kNumberMax ? expr : nullptr; }

// Whether a loop variable is in `expr`.
bool IndexMath::HasVariable(const Expr* expr) {
  if (expr->kind == ExprKind::kSymbol) return VariableOf(expr->symbol) >= 0;
  return std::ranges::any_of(expr->args, [](const Expr* arg) { return HasVariable(arg); });
}

// a / b and a mod b, with the multiples of b split off and the rest dropped where its range allows.
const Expr* IndexMath::DivMod(const Expr* a, const Expr* b, bool mod) {
  if (b->IsConst(0)) return pool_->Const(0);  // An empty tensor: never evaluated.
  const std::vector<const Expr*> terms = SummandsOf(b);
  if (b->IsConst() || (terms.size() == 1 && ConstantOf(b) == 0)) {
    const int64_t divisor = b->IsConst() ? b->value : CoefficientOf(b);
    const std::vector<const Expr*> atoms = b->IsConst() ? std::vector<const Expr*>() : AtomsOf(b);
    const Expr* quotient = pool_->Const(0);
    const Expr* rest = pool_->Const(ConstantOf(a));
    for (const Expr* term : SummandsOf(a)) {
      std::vector<const Expr*> left = AtomsOf(term);
      bool divides = CoefficientOf(term) % divisor == 0;
      for (const Expr* atom : atoms) {
        const auto at = std::find(left.begin(), left.end(), atom);
        divides = divides && at != left.end();
        if (at != left.end()) left.erase(at);
      }
      if (!divides) {
        rest = pool_->Add(rest, term);
        continue;
      }
      const Expr* part = pool_->Const(CoefficientOf(term) / divisor);
      for (const Expr* atom : left) part = pool_->Mul(part, atom);
      quotient = pool_->Add(quotient, part);
    }
    if (NonNegative(rest) && Upper(rest) != nullptr &&
        NonNegative(pool_->Sub(pool_->Sub(b, pool_->Const(1)), Upper(rest)))) {
      return mod ? rest : quotient;
    }
    if (mod) return pool_->Mod(rest, b);
    return pool_->Add(quotient, pool_->FloorDiv(rest, b));
  }
  return mod ? pool_->Mod(a, b) : pool_->FloorDiv(a, b);
}

bool IndexMath::IsIndexCondition(const Element* element) {
  if (element->dtype != DType::kBool) return false;
  if (element->kind == Element::Kind::kInt) return true;
  if (element->kind != Element::Kind::kPrim) return false;
  if (fusion::IsComparison(element->prim)) {
    return ToExpr(element->args[0]) != nullptr && ToExpr(element->args[1]) != nullptr;
  }
  if (element->prim != Prim::kAnd && element->prim != Prim::kOr && element->prim != Prim::kNot) return false;
  for (const Element* arg : element->args) {
    if (!IsIndexCondition(arg)) return false;
  }
  return true;
}

bool IndexMath::GuardsSides(const Element* select) {
  const Element* condition = select->args[0];
  if (IsIndexCondition(condition)) return true;
  if (!condition->has_load) return IsAtComputedIndex(select->args[1]) || IsAtComputedIndex(select->args[2]);
  // What the condition itself is computed from is loaded whatever it says: an index, of which it asks whether it is
  // negative. (Guarded, indices that are data of each other's tensors would double the code at every step.)
  const auto is_computed = [&](const Element* e) {
    return !e->has_load || std::ranges::find(condition->args, e) != condition->args.end();
  };
  const auto needs_guard = [&](const Element* side) {
    if (!side->has_data_index || is_computed(side)) return false;
    return side->kind != Element::Kind::kPrim || !std::ranges::all_of(side->args, is_computed);
  };
  return needs_guard(select->args[1]) || needs_guard(select->args[2]);
}

bool IndexMath::IsAtComputedIndex(const Element* element) {
  std::unordered_set<const Element*> seen;
  const auto visit = [&](const auto& self, const Element* e) -> bool {
    if (!e->has_load || !seen.insert(e).second) return false;
    const bool is_load = e->kind == Element::Kind::kLoad;
    return std::ranges::any_of(e->args, [&](const Element* arg) {
      return (is_load && !arg->has_load && ToExpr(arg) == nullptr) || self(self, arg);
    });
  };
  return visit(visit, element);
}

std::optional<bool> IndexMath::Decide(const Element* element) {
  if (!IsIndexCondition(element)) return std::nullopt;
  if (element->kind == Element::Kind::kInt) return element->integer != 0;
  if (!fusion::IsComparison(element->prim)) {
    const std::optional<bool> a = Decide(element->args[0]);
    if (element->prim == Prim::kNot) return a ? std::optional<bool>(!*a) : std::nullopt;
    const std::optional<bool> b = Decide(element->args[1]);
    const bool ruling = element->prim == Prim::kOr;
    if (a == ruling || b == ruling) return ruling;
    return a && b ? std::optional<bool>(!ruling) : std::nullopt;
  }
  const Expr* const one = pool_->Const(1);
  const Expr* a = ToExpr(element->args[0]);
  const Expr* b = ToExpr(element->args[1]);
  if (element->prim == Prim::kGt || element->prim == Prim::kLe) std::swap(a, b);  // a < b, a >= b
  const Expr* const less = pool_->Sub(pool_->Sub(b, a), one);                     // >= 0 where a < b.
  const Expr* const not_less = pool_->Sub(a, b);                                  // >= 0 where a >= b.
  if (element->prim == Prim::kEq || element->prim == Prim::kNe) {
    const bool equal = element->prim == Prim::kEq;
    if (not_less->IsConst(0)) return equal;
    if (NonNegative(less) || NonNegative(pool_->Sub(not_less, one))) return !equal;
    return std::nullopt;
  }
  const bool if_less = element->prim == Prim::kLt || element->prim == Prim::kGt;
  if (NonNegative(less)) return if_less;
  if (NonNegative(not_less)) return !if_less;
  return std::nullopt;
}

std::optional<IndexMath::Threshold> IndexMath::ThresholdOf(const Element* condition) {
  const Prim prim = condition->prim;
  if (condition->kind != Element::Kind::kPrim || !fusion::IsComparison(prim) || prim == Prim::kEq || prim == Prim::kNe)
    return std::nullopt;
  const Expr* left = ToExpr(condition->args[0]);
  const Expr* right = ToExpr(condition->args[1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  const Expr* difference = pool_->Sub(left, right);
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(difference, symbols);
  int variable = -1;
  for (const std::string_view symbol : symbols) {
    const int own = VariableOf(symbol);
    if (own >= 0 && variable >= 0 && own != variable) return std::nullopt;
    variable = std::max(variable, own);
  }
  if (variable < 0) return std::nullopt;
  const auto split = Split(difference, variable);
  if (!split || !(split->stride->IsConst(1) || split->stride->IsConst(-1))) return std::nullopt;
  // base + v < 0 where v < -base; base - v < 0 where not v < base + 1. And so on.
  const bool rises = split->stride->IsConst(1);
  const bool strict = prim == Prim::kLt || prim == Prim::kGt;
  const bool below = (prim == Prim::kLt || prim == Prim::kLe) == rises;
  const Expr* root = rises ? pool_->Sub(pool_->Const(0), split->base) : split->base;
  return Threshold{variable, below == strict ? root : pool_->Add(root, pool_->Const(1)), below};
}

const Expr* IndexMath::Upper(const Expr* expr) { return Bound(expr, true, 0); }
const Expr* IndexMath::Lower(const Expr* expr) { return Bound(expr, false, 0); }

// Polynomials with one variable a term are monotone in it when the other atoms are not negative.
const Expr* IndexMath::Bound(const Expr* expr, bool upper, int depth) {
  if (depth > kDepthMax) return nullptr;
  const Expr* sum = pool_->Const(ConstantOf(expr));
  for (const Expr* term : SummandsOf(expr)) {
    const int64_t coefficient = CoefficientOf(term);
    const bool atom_upper = coefficient > 0 ? upper : !upper;
    const std::vector<const Expr*> atoms = AtomsOf(term);
    const Expr* product = pool_->Const(coefficient);
    for (const Expr* atom : atoms) {
      const Expr* bound = BoundAtom(atom, atom_upper, depth + 1);
      if (bound == nullptr) return nullptr;
      if (atoms.size() > 1) {
        const Expr* low = BoundAtom(atom, false, depth + 1);
        if (low == nullptr || !(low->IsConst() ? low->value >= 0 : NonNegative(low))) return nullptr;
      }
      product = pool_->Mul(product, bound);
    }
    sum = pool_->Add(sum, product);
  }
  return sum;
}

const Expr* IndexMath::BoundAtom(const Expr* atom, bool upper, int depth) {
  switch (atom->kind) {
    case ExprKind::kSymbol: {
      const auto range = ranges_.find(VariableOf(atom->symbol));
      if (range == ranges_.end()) return VariableOf(atom->symbol) >= 0 ? nullptr : atom;
      const Expr* bound = upper ? range->second.high : range->second.low;
      return bound == nullptr ? nullptr : Bound(bound, upper, depth + 1);
    }
    case ExprKind::kFloorDiv: {
      if (!atom->args[1]->IsConst() || atom->args[1]->value <= 0) {
        if (upper || depth > kDepthMax) return nullptr;
        const Expr* low = Bound(atom->args[0], false, depth + 1);
        return low != nullptr && NonNegative(low) ? pool_->Const(0) : nullptr;
      }
      const Expr* bound = Bound(atom->args[0], upper, depth + 1);
      return bound == nullptr ? nullptr : pool_->FloorDiv(bound, atom->args[1]);
    }
    case ExprKind::kMod: {
      if (!upper) return pool_->Const(0);
      const Expr* bound = Bound(atom->args[1], true, depth + 1);
      return bound == nullptr ? nullptr : pool_->Sub(bound, pool_->Const(1));
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const Expr* a = Bound(atom->args[0], upper, depth + 1);
      const Expr* b = Bound(atom->args[1], upper, depth + 1);
      if (a == nullptr || b == nullptr) {  // min is at most either, max at least either.
        return (atom->kind == ExprKind::kMin) == upper ? (a != nullptr ? a : b) : nullptr;
      }
      // min(8*i + 8, n) is at most n, whatever i is.
      if (atom->kind == ExprKind::kMin && upper && a != b) {
        if (a == atom->args[0]) return a;
        if (b == atom->args[1]) return b;
      }
      return atom->kind == ExprKind::kMin ? pool_->Min(a, b) : pool_->Max(a, b);
    }
    case ExprKind::kCeilDiv:
    case ExprKind::kConst:
    case ExprKind::kMul:
    case ExprKind::kAdd: break;
  }
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(atom, symbols);
  for (std::string_view symbol : symbols) {
    if (VariableOf(symbol) >= 0) return nullptr;
  }
  return atom;
}

bool IndexMath::NonNegative(const Expr* expr) {
  if (expr->IsConst()) return expr->value >= 0;
  const Expr* low = Lower(expr);
  if (low == nullptr) return false;
  if (low->kind == ExprKind::kMin) {
    return NonNegative(low->args[0]) && NonNegative(low->args[1]);
  }
  if (ConstantOf(low) < 0) return false;
  for (const Expr* term : SummandsOf(low)) {
    if (CoefficientOf(term) < 0) return false;
  }
  return true;  // Symbols are extents and coordinates.
}

bool IndexMath::DependsOn(const Expr* expr, int variable) {
  if (expr->kind == ExprKind::kSymbol) return VariableOf(expr->symbol) == variable;
  for (const Expr* arg : expr->args) {
    if (DependsOn(arg, variable)) return true;
  }
  return false;
}

std::optional<IndexMath::Affine> IndexMath::Split(const Expr* expr, int variable) {
  Affine affine = {pool_->Const(ConstantOf(expr)), pool_->Const(0)};
  for (const Expr* term : SummandsOf(expr)) {
    if (!DependsOn(term, variable)) {
      affine.base = pool_->Add(affine.base, term);
      continue;
    }
    const Expr* factor = pool_->Const(CoefficientOf(term));
    int times = 0;
    for (const Expr* atom : AtomsOf(term)) {
      if (atom->kind == ExprKind::kSymbol && VariableOf(atom->symbol) == variable) {
        ++times;
      } else if (DependsOn(atom, variable)) {
        return std::nullopt;
      } else {
        factor = pool_->Mul(factor, atom);
      }
    }
    if (times != 1) return std::nullopt;
    affine.stride = pool_->Add(affine.stride, factor);
  }
  return affine;
}

}  // namespace hir::codegen
