// Loops that guards depend on, and which guards hold for whole vectors.
#include "csrc/codegen/gpu/guards.h"

#include <algorithm>

namespace hir::codegen::gpu {

using fusion::Prim;

uint64_t Guards::VarsOf(int guard) {
  uint64_t vars = 0;
  for (; guard != 0; guard = at(guard).parent) vars |= dependences_.VarsOf(at(guard).condition);
  return vars;
}

std::optional<bool> Guards::Known(int guard, const Element* condition) const {
  for (; guard != 0; guard = at(guard).parent) {
    if (at(guard).condition == condition) return at(guard).holds;
  }
  return std::nullopt;
}

// Its two sides differ by +-1 times the vector variable and a multiple of the lanes, on the side of the comparison
// where the first lane decides.
bool Guards::IsUniform(const Element* condition) {
  const uint64_t vars = dependences_.VarsOf(condition);
  if (!dependences_.IsLane(vars) && (vars & Dependences::kLaneBit) == 0) return true;
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
  ir::ExprPool& pool = math_.pool();
  const auto split = math_.Split(is_greater ? pool.Sub(b, a) : pool.Sub(a, b), vector_.variable());
  return split && split->stride->IsConst(1) && conditions_.BeginsVector(split->base);
}

bool Guards::IsUniformGuard(int guard) {
  for (; guard != 0; guard = at(guard).parent) {
    if (!IsUniform(at(guard).condition)) return false;
  }
  return true;
}

}  // namespace hir::codegen::gpu
