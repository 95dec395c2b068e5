#include "csrc/codegen/cpu/dependences.h"

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::codegen::cpu {

using ir::Expr;
using ir::ExprKind;

void Dependences::StartRegion(const Region& region) {
  region_ = &region;
  expr_variables_.clear();
  element_variables_.clear();
  results_.clear();
}

void Dependences::EnterRange(int variable, const Expr* first, const Expr* last) {
  HIR_CHECK(!outer_range_ || outer_variable_ == variable);  // Ranges do not nest.
  if (!outer_range_) outer_range_ = math_.RangeOf(variable);
  outer_variable_ = variable;
  math_.ResetRange(variable, first, math_.pool().Sub(last, math_.pool().Const(1)));
  epoch_ = num_epochs_++;
  element_variables_.clear();
}

void Dependences::LeaveRange(int variable) {
  math_.ResetRange(variable, outer_range_->low, outer_range_->high);
  outer_range_.reset();
  epoch_ = 0;
  element_variables_.clear();
}

uint64_t Dependences::Of(const Expr* expr) {
  const auto [at, added] = expr_variables_.try_emplace(expr, 0);
  if (!added) return at->second;
  uint64_t variables = 0;
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable >= 0) variables = scopes_.BitOf(variable);
    if (const Data* data = DataOf(*expr)) variables = Of(data->element) | OfGuard(data->guard);
  }
  for (const Expr* arg : expr->args) variables |= Of(arg);
  return expr_variables_[expr] = variables;
}

uint64_t Dependences::Of(const Element* element) {
  const auto known = element_variables_.find(element);
  if (known != element_variables_.end()) return known->second;
  uint64_t variables = 0;
  if (element->kind == Element::Kind::kIndex) variables = scopes_.BitOf(static_cast<int>(element->integer));
  if (element->kind == Element::Kind::kLoad && IsResult(element->value)) {
    variables = Scopes::kRowBit;
    if (region_->columns) variables |= scopes_.BitOf(region_->columns->variable);
  } else if (const Expr* expr = math_.ToExpr(element)) {
    variables = Of(expr);  // Of what is left after simplifying.
  } else {
    for (const Element* arg : element->args) variables |= Of(arg);
  }
  return element_variables_[element] = variables;
}

uint64_t Dependences::OfGuard(int guard) {
  uint64_t variables = 0;
  for (; guard != 0; guard = guards_.at(guard).parent) variables |= Of(guards_.at(guard).condition);
  return variables;
}

const Expr* Dependences::DataSymbol(const Element* element, int guard) {
  const std::string name = base::Cat("%data", element->id, ".", guard, ".", epoch_);
  data_[name] = {element, guard};
  return math_.pool().Symbol(name);
}

const Dependences::Data* Dependences::DataOf(const Expr& symbol) const {
  const auto data = data_.find(std::string(symbol.symbol));
  return data == data_.end() ? nullptr : &data->second;
}

}  // namespace hir::codegen::cpu
