// Builder::Unify: how "these two sizes are one" becomes a replaced symbol or a guard.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"

namespace hir::ir {
namespace {

using base::Cat;

// Loop indices, mesh coordinates and the rank have values of their own; only sizes can be replaced.
bool IsSize(const Expr* expr) {
  return expr->kind == ExprKind::kSymbol && expr->symbol[0] != '%' && expr->symbol[0] != '@' &&
         expr->symbol != "rank";
}

bool IsParamExtent(const Graph& graph, std::string_view symbol) {
  return std::any_of(graph.params.begin(), graph.params.end(), [&](const Value* param) {
    return std::any_of(param->type->axes.begin(), param->type->axes.end(), [&](const Axis& axis) {
      return axis.extent->kind == ExprKind::kSymbol && axis.extent->symbol == symbol;
    });
  });
}

// Whether `symbol` := `to` keeps every size known: the extents of the inputs are where sizes come from, so an input's
// extent may become an expression only if the inputs say what is in that expression.
bool MayReplace(const Graph& graph, const Expr* symbol, const Expr* to) {
  std::vector<std::string_view> symbols;
  CollectSymbols(to, symbols);
  if (std::find(symbols.begin(), symbols.end(), symbol->symbol) != symbols.end()) return false;
  if (to->IsConst() || to->kind == ExprKind::kSymbol) return true;
  if (!IsParamExtent(graph, symbol->symbol)) return true;
  return std::all_of(symbols.begin(), symbols.end(), [&](std::string_view s) { return IsParamExtent(graph, s); });
}

}  // namespace

Status Builder::Unify(Graph& graph, const Expr* a, const Expr* b, std::string_view what) {
  ExprPool& pool = graph.exprs();
  a = graph.Resolve(a);
  b = graph.Resolve(b);
  if (a == b) return {};
  if (a->IsConst() && b->IsConst()) {
    return InvalidArgument(Cat(what, ": ", a->value, " is not ", b->value));
  }
  if (IsSize(a) && IsSize(b) && pool.SymbolOrder(a) < pool.SymbolOrder(b)) std::swap(a, b);
  if (!IsSize(a)) std::swap(a, b);
  if (IsSize(a) && MayReplace(graph, a, b)) {
    if (b->kind != ExprKind::kSymbol || IsSize(b)) {
      return graph.ReplaceSymbol(a->symbol, b);
    }
  }
  return graph.AddGuard({.kind = Guard::Kind::kEqual, .left = a, .right = b, .reason = std::string(what)});
}

}  // namespace hir::ir
