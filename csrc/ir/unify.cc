// Builder::Unify: how "these two sizes are one" becomes a replaced symbol or a guard.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"

namespace hir::ir {
namespace {

using base::Cat;

// Loop indices, mesh coordinates and the rank have values of their own; only sizes can be replaced.
bool IsSize(const Expr* expr) {
  return expr->kind == ExprKind::kSymbol && expr->symbol[0] != '%' && expr->symbol[0] != '@' && expr->symbol != "rank";
}

// Whether `symbol` := `to` keeps every size known: the extents of the inputs are where sizes come from, so an input's
// extent may become an expression only if the inputs say what is in that expression.
bool MayReplace(Graph& graph, const Expr* symbol, const Expr* to) {
  const bool named = !to->IsConst() && to->kind != ExprKind::kSymbol && graph.IsInputSize(symbol);
  const auto fits = [&](const auto& self, const Expr* expr) -> bool {
    if (expr == symbol) return false;
    if (expr->kind == ExprKind::kSymbol) return !named || graph.IsInputSize(expr);
    return std::all_of(expr->args.begin(), expr->args.end(), [&](const Expr* arg) { return self(self, arg); });
  };
  return fits(fits, to);
}

// The symbol of `a` and `b` to replace, by the other side; null when neither may be.
const Expr* Replaceable(Graph& graph, const Expr*& a, const Expr*& b) {
  if (IsSize(a) && IsSize(b) && graph.exprs().SymbolOrder(a) < graph.exprs().SymbolOrder(b)) std::swap(a, b);
  if (!IsSize(a)) std::swap(a, b);
  const bool fixed = b->kind == ExprKind::kSymbol && !IsSize(b);
  return IsSize(a) && !fixed && MayReplace(graph, a, b) ? a : nullptr;
}

// A replacement may have made another one possible that had to stay a guard.
Status SettleGuards(Graph& graph) {
  for (size_t i = 0; i < graph.guards.size();) {
    const Expr* a = graph.guards[i].left;
    const Expr* b = graph.guards[i].right;
    const bool equal = graph.guards[i].kind == Guard::Kind::kEqual;
    const Expr* symbol = equal ? Replaceable(graph, a, b) : nullptr;
    if (symbol == nullptr) {
      ++i;
      continue;
    }
    HIR_TRY(graph.ReplaceSymbol(symbol->symbol, b));  // The guard then holds, and goes.
    i = 0;
  }
  return {};
}

}  // namespace

Status Builder::Unify(Graph& graph, const Expr* a, const Expr* b, std::string_view what) {
  a = graph.Resolve(a);
  b = graph.Resolve(b);
  if (a == b) return {};
  if (a->IsConst() && b->IsConst()) {
    return InvalidArgument(Cat(what, ": ", a->value, " is not ", b->value));
  }
  if (const Expr* symbol = Replaceable(graph, a, b); symbol != nullptr) {
    HIR_TRY(graph.ReplaceSymbol(symbol->symbol, b));
    return SettleGuards(graph);
  }
  return graph.AddGuard({.kind = Guard::Kind::kEqual, .left = a, .right = b, .reason = std::string(what)});
}

}  // namespace hir::ir
