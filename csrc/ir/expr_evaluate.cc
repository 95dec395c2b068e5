// What extents are worth, and which symbols they hold.
#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/ir/expr.h"

namespace hir::ir {

using base::CheckedAdd;
using base::CheckedMul;

namespace {

using Lookup = std::function<std::optional<int64_t>(std::string_view)>;

std::optional<int64_t> Apply(ExprKind kind, int64_t a, int64_t b) {
  switch (kind) {
    case ExprKind::kMul: return CheckedMul(a, b);
    case ExprKind::kAdd: return CheckedAdd(a, b);
    case ExprKind::kMin: return std::min(a, b);
    case ExprKind::kMax: return std::max(a, b);
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kCeilDiv:
      if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
      if (kind == ExprKind::kFloorDiv) return b > 0 ? base::FloorDiv(a, b) : -base::CeilDiv(a, -b);
      if (kind == ExprKind::kMod) return b > 0 ? base::FloorMod(a, b) : -base::FloorMod(a, -b);
      return b > 0 ? base::CeilDiv(a, b) : -base::FloorDiv(a, -b);
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  return std::nullopt;
}

}  // namespace

Result<int64_t> Evaluate(const Expr* expr, const Lookup& lookup) {
  if (expr->kind == ExprKind::kConst) return expr->value;
  if (expr->kind == ExprKind::kSymbol) {
    const std::optional<int64_t> value = lookup(expr->symbol);
    if (!value) return InvalidArgument(base::Cat("extent ", expr->symbol, " has no value"));
    return *value;
  }
  const bool nary = expr->kind == ExprKind::kMul || expr->kind == ExprKind::kAdd;
  HIR_ASSIGN(int64_t value, Evaluate(expr->args[0], lookup));
  if (nary) {
    const auto first = Apply(expr->kind, expr->value, value);
    if (!first) return InvalidArgument(base::Cat("extent ", ToString(expr), " overflows 64 bits"));
    value = *first;
  }
  for (size_t i = 1; i < expr->args.size(); ++i) {
    HIR_ASSIGN(const int64_t next, Evaluate(expr->args[i], lookup));
    const auto applied = Apply(expr->kind, value, next);
    if (!applied) return InvalidArgument(base::Cat("extent ", ToString(expr), " overflows or divides by zero"));
    value = *applied;
  }
  return value;
}

void CollectSymbols(const Expr* expr, std::vector<std::string_view>& symbols) {
  if (expr->kind == ExprKind::kSymbol && std::find(symbols.begin(), symbols.end(), expr->symbol) == symbols.end()) {
    symbols.push_back(expr->symbol);
  }
  for (const Expr* arg : expr->args) CollectSymbols(arg, symbols);
}

}  // namespace hir::ir
