// Variables of expressions and elements, and their scopes.
#include "csrc/codegen/gpu/dependences.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace hir::codegen::gpu {

using base::Cat;

void Dependences::StartRegion(const Region& region) {
  variables_.clear();
  expr_vars_.clear();
  element_vars_.clear();
  results_.clear();
  accumulated_.clear();
  ir::ExprPool& pool = math_.pool();
  const auto add = [&](const Loop& loop) {
    const ir::Expr *begin = pool.Import(loop.begin), *last = pool.Sub(pool.Import(loop.end), pool.Const(1));
    if (std::ranges::find(variables_, loop.variable) != variables_.end())
      return math_.WidenRange(loop.variable, begin, last);  // Another phase's, too.
    variables_.push_back(loop.variable);
    math_.SetRange(loop.variable, begin, last);
  };
  for (const Loop& loop : region.grid) add(loop);
  for (const Loop& loop : region.serial) add(loop);
  for (const Phase& phase : region.phases) {
    for (const Loop& loop : phase.loops) add(loop);
    for (const Accumulator& accumulator : phase.accumulators) accumulated_.insert(accumulator.value);
  }
  if (variables_.size() > kVariablesMax) {
    code_.Fail(Unimplemented(Cat("a kernel with ", variables_.size(), " loops; the limit is ", kVariablesMax)));
    variables_.resize(kVariablesMax);
  }
}

void Dependences::SetResult(const ir::Value* value, std::string text, bool is_lane) {
  results_[value] = {std::move(text), is_lane};
  if (is_lane) element_vars_.clear();
}

const std::string* Dependences::ResultOf(const ir::Value* value) const {
  const auto known = results_.find(value);
  return known == results_.end() ? nullptr : &known->second.text;
}

uint64_t Dependences::BitOf(int variable) const {
  const auto at = std::ranges::find(variables_, variable);
  return at == variables_.end() ? 0 : uint64_t{1} << (at - variables_.begin());
}

uint64_t Dependences::VarsOf(const ir::Expr* expr) {
  const auto known = expr_vars_.find(expr);
  if (known != expr_vars_.end()) return known->second;
  uint64_t vars = 0;
  if (expr->kind == ir::ExprKind::kSymbol && VariableOf(expr->symbol) >= 0) vars = BitOf(VariableOf(expr->symbol));
  for (const ir::Expr* arg : expr->args) vars |= VarsOf(arg);
  return expr_vars_[expr] = vars;
}

uint64_t Dependences::VarsOf(const Element* element) {
  const auto known = element_vars_.find(element);
  if (known != element_vars_.end()) return known->second;
  uint64_t vars = 0;
  if (element->kind == Element::Kind::kLoad && accumulated_.contains(element->value)) {
    const auto result = results_.find(element->value);
    vars = kRowBit | (result != results_.end() && result->second.is_lane ? kLaneBit : 0);
  } else if (const ir::Expr* expr = math_.ToExpr(element)) {
    vars = VarsOf(expr);
  } else {
    for (const Element* arg : element->args) vars |= VarsOf(arg);
  }
  return element_vars_[element] = vars;
}

bool Dependences::HasAny(uint64_t vars, std::span<const Loop> loops) const {
  return std::ranges::any_of(loops, [&](const Loop& loop) { return Has(vars, loop.variable); });
}

size_t Dependences::LevelOf(uint64_t vars, bool is_lane) const {
  size_t level = (vars & kRowBit) != 0 ? code_.row_level() : 0;
  if (is_lane || (vars & kLaneBit) != 0) level = std::max(level, code_.lane_level());
  for (size_t i = 0; i < variables_.size(); ++i) {
    if ((vars >> i & 1) == 0) continue;
    const std::optional<size_t> at = code_.LevelOf(variables_[i]);
    HIR_CHECK(at.has_value());
    level = std::max(level, *at);
  }
  return level;
}

bool Dependences::DependsOn(const Element* element, std::span<const Loop> loops) {
  return (VarsOf(element) & kRowBit) != 0 || VariesWith(element, loops);
}

}  // namespace hir::codegen::gpu
