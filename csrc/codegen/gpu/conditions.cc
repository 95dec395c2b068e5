// Conditions, and what they make divisible.
#include "csrc/codegen/gpu/conditions.h"

#include <algorithm>
#include <array>

#include "csrc/codegen/gpu/gpu.h"

namespace hir::codegen::gpu {

using base::Cat;
using ir::ExprKind;

void Conditions::Require(std::string condition) {
  if (!is_probing_) texts_.insert(std::move(condition));
}

void Conditions::RequireAligned(int tensor, int64_t bytes) {
  Require(Cat("((u64)a.t", tensor, " & ", bytes - 1, "u) == 0"));
}

void Conditions::Probe(const std::function<void()>& body) {
  is_probing_ = true;
  body();
  is_probing_ = false;
}

bool Conditions::IsMultiple(int variable, int64_t by) const {
  return variable == vector_.variable() && vector_.skew() == nullptr && vector_.lanes() % by == 0;
}

bool Conditions::BeginsVector(const ir::Expr* base) {
  return Divisible(vector_.skew() == nullptr ? base : pool_.Sub(base, vector_.skew()), vector_.lanes());
}

bool Conditions::Divisible(const ir::Expr* expr, int64_t by) {
  if (by == 1) return true;
  if (expr->IsConst()) return expr->value % by == 0;
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable >= 0) return IsMultiple(variable, by);
  } else if (expr->kind == ExprKind::kMin || expr->kind == ExprKind::kMax || expr->kind == ExprKind::kMod) {
    return Divisible(expr->args[0], by) && Divisible(expr->args[1], by);
  } else if (expr->kind == ExprKind::kAdd) {
    if (expr->value % by != 0) return false;
    return std::ranges::all_of(expr->args, [&](const ir::Expr* term) { return Divisible(term, by); });
  } else if (expr->kind == ExprKind::kMul) {
    if (expr->value % by == 0) return true;
    const ir::Expr* symbols = pool_.Const(expr->value);
    for (const ir::Expr* atom : expr->args) {
      const bool is_symbolic = dependences_.VarsOf(atom) == 0;
      if (!is_symbolic && atom->kind == ExprKind::kSymbol && IsMultiple(VariableOf(atom->symbol), by)) return true;
      if (is_symbolic) symbols = pool_.Mul(symbols, atom);
    }
    if (symbols->IsConst()) return false;
    expr = symbols;
  }
  if (dependences_.VarsOf(expr) != 0 || !MayDivide(expr, by)) return false;
  if (!is_probing_) Require(Cat(arguments_.SymbolText(expr), " % ", by, " == 0"));
  return true;
}

// A symbol's size is told from others by what VectorOfSize says of it alone: one text is for all that are alike.
bool Conditions::MayDivide(const ir::Expr* expr, int64_t by) const {
  if (sizes_ == nullptr) return true;
  const bool is_alone = expr->kind == ExprKind::kSymbol;
  const auto value = ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto known = sizes_->find(std::string(symbol));
    if (known == sizes_->end()) return std::nullopt;
    return is_alone ? VectorOfSize(known->second) : known->second;
  });
  return !value.ok() || *value % by == 0;
}

SizeRange SizesLike(int64_t size) {
  constexpr std::array<int64_t, 7> kFirst = {64, 256, 1024, 4096, 16384, 65536, 262144};  // Of all but the lowest.
  SizeRange range;
  for (const int64_t first : kFirst) {
    if (size < first) {
      range.most = first - 1;
      break;
    }
    range.least = first;
  }
  return range;
}

}  // namespace hir::codegen::gpu
