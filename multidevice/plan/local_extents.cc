#include "multidevice/plan/local_extents.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <vector>

namespace hir::plan {

namespace {

constexpr int64_t kGuess = 1024;  // An extent that nothing is known of.

}  // namespace

int64_t LocalExtents::Estimate(const ir::Expr* extent) const {
  const auto value = [&](std::string_view symbol) -> std::optional<int64_t> {
    const auto found = sizes_.find(std::string(symbol));
    return found == sizes_.end() ? kGuess : found->second;
  };
  const Result<int64_t> estimate = ir::Evaluate(extent, value);
  return estimate.ok() ? std::max<int64_t>(*estimate, 0) : kGuess;
}

bool LocalExtents::IsAtHand(const ir::Expr* extent) const {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(extent, symbols);
  return std::ranges::all_of(symbols, [&](std::string_view symbol) { return sizes_.contains(std::string(symbol)); });
}

bool LocalExtents::LooksEven(const ir::Expr* extent, int64_t ways) const {
  if (extent->IsConst()) return extent->value % ways == 0;
  return !IsAtHand(extent) || Estimate(extent) % ways == 0;
}

bool LocalExtents::Require(const ir::Expr* extent, int64_t ways) {
  if (ways == 1 || extent->IsConst()) return false;
  if (extent->kind == ir::ExprKind::kSymbol) {
    const auto [known, added] = multiple_of_.emplace(pool_.Symbol(extent->symbol)->symbol, ways);
    if (added) return true;
    if (known->second % ways == 0) return false;
    known->second = std::lcm(known->second, ways);
    return true;
  }
  return !factors_.Mod(InFactors(extent), factors_.Const(ways))->IsConst(0);
}

const ir::Expr* LocalExtents::Share(const ir::Expr* extent, int64_t ways) {
  if (ways == 1) return pool_.Import(extent);
  if (IsUneven(extent)) return pool_.CeilDiv(pool_.Import(extent), pool_.Const(ways));
  if (extent->IsConst()) return pool_.Const(extent->value / ways);
  return Back(factors_.FloorDiv(InFactors(extent), factors_.Const(ways)));
}

const ir::Expr* LocalExtents::InFactors(const ir::Expr* extent) {
  std::unordered_map<std::string_view, const ir::Expr*> symbols;
  for (const auto& [symbol, multiple] : multiple_of_) {
    symbols.emplace(symbol, factors_.Mul(factors_.Const(multiple), factors_.Symbol(symbol)));
  }
  return factors_.Substitute(extent, symbols);
}

const ir::Expr* LocalExtents::Back(const ir::Expr* extent) {
  const auto multiple = [&](const ir::Expr* e) -> int64_t {
    const auto found = e->kind == ir::ExprKind::kSymbol ? multiple_of_.find(e->symbol) : multiple_of_.end();
    return found == multiple_of_.end() ? 1 : found->second;
  };
  if (extent->kind == ir::ExprKind::kAdd) {
    const ir::Expr* sum = pool_.Const(extent->value);
    for (const ir::Expr* term : extent->args) sum = pool_.Add(sum, Back(term));
    return sum;
  }
  if (extent->kind == ir::ExprKind::kMul || extent->kind == ir::ExprKind::kSymbol) {
    const bool lone = extent->kind == ir::ExprKind::kSymbol;
    int64_t coefficient = lone ? 1 : extent->value;
    std::vector<const ir::Expr*> atoms;
    if (lone) atoms.push_back(extent);
    atoms.insert(atoms.end(), extent->args.begin(), extent->args.end());
    const ir::Expr* product = pool_.Const(1);
    for (const ir::Expr* atom : atoms) {
      const int64_t n = multiple(atom);
      const ir::Expr* whole = atom->kind == ir::ExprKind::kSymbol ? pool_.Symbol(atom->symbol) : Back(atom);
      if (coefficient % n == 0) {
        coefficient /= n;
        product = pool_.Mul(product, whole);
      } else {
        product = pool_.Mul(product, pool_.FloorDiv(whole, pool_.Const(n)));
      }
    }
    return pool_.Mul(pool_.Const(coefficient), product);
  }
  if (extent->IsConst()) return pool_.Const(extent->value);
  const ir::Expr* a = Back(extent->args[0]);
  const ir::Expr* b = Back(extent->args[1]);
  switch (extent->kind) {
    case ir::ExprKind::kFloorDiv: return pool_.FloorDiv(a, b);
    case ir::ExprKind::kMod: return pool_.Mod(a, b);
    case ir::ExprKind::kCeilDiv: return pool_.CeilDiv(a, b);
    case ir::ExprKind::kMin: return pool_.Min(a, b);
    case ir::ExprKind::kMax: return pool_.Max(a, b);
    case ir::ExprKind::kConst:
    case ir::ExprKind::kSymbol:
    case ir::ExprKind::kMul:
    case ir::ExprKind::kAdd: break;
  }
  HIR_CHECK(false);
  return nullptr;
}

const ir::Type* ShareType(ir::Graph& graph, LocalExtents& extents, const ir::Type& type,
                          const fusion::Placement& placement) {
  if (type.kind == ir::TypeKind::kScalar) return graph.Scalar(type.dtype);
  std::vector<ir::Axis> axes;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const int64_t ways = fusion::Ways(*placement.mesh, placement.axes[i]);
    axes.push_back({type.axes[i].kind, extents.Share(type.axes[i].extent, ways)});
  }
  return graph.Tensor(type.dtype, axes);
}

}  // namespace hir::plan
