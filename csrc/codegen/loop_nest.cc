#include "csrc/codegen/loop_nest.h"

#include <algorithm>
#include <charconv>

#include "csrc/base/text.h"

namespace hir::codegen {

std::string VariableSymbol(int variable) { return base::Cat("%", variable); }

int VariableOf(std::string_view symbol) {
  if (symbol.size() < 2 || symbol[0] != '%') return -1;
  return static_cast<int>(base::ParseInt(symbol.substr(1)).value_or(-1));
}

bool HasVariable(const ir::Expr* expr) {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(expr, symbols);
  return std::ranges::any_of(symbols, [](std::string_view symbol) { return VariableOf(symbol) >= 0; });
}

std::vector<int> VariablesOf(const fusion::Element& element) {
  if (element.kind == fusion::Element::Kind::kIndex) return {static_cast<int>(element.integer)};
  if (element.kind != fusion::Element::Kind::kExtent) return {};
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(element.extent, symbols);
  std::vector<int> variables;
  for (const std::string_view symbol : symbols) {
    if (const int variable = VariableOf(symbol); variable >= 0) variables.push_back(variable);
  }
  return variables;
}

int64_t SizeOf(const ir::Expr* expr, const Sizes& sizes, int64_t otherwise) {
  const auto value = ir::Evaluate(expr, [&](std::string_view symbol) -> std::optional<int64_t> {
    if (VariableOf(symbol) >= 0) return 0;
    const auto at = sizes.find(std::string(symbol));
    return at == sizes.end() ? std::nullopt : std::optional(at->second);
  });
  return value.ok() ? *value : otherwise;
}

const ir::Expr* GridOf(ir::ExprPool& pool, const Region& region) {
  const ir::Expr* items = pool.Const(1);
  for (const Loop& loop : region.grid) items = pool.Mul(items, pool.Import(loop.end));
  return items;
}

const ir::Expr* GridOf(ir::ExprPool& pool, const LoopNest& nest) {
  const ir::Expr* items = pool.Const(0);
  for (const Region& region : nest.regions) items = pool.Add(items, GridOf(pool, region));
  return items;
}

}  // namespace hir::codegen
