#include "csrc/ir/builder.h"

namespace hir::ir {

std::vector<Leaf> LoopDomain(ExprPool& pool, const Type& type, std::span<const LoopTransform> transforms) {
  std::vector<Leaf> leaves;
  for (size_t i = 0; i < type.axes.size(); ++i) leaves.push_back({type.axes[i].extent, static_cast<int>(i), true});
  for (const LoopTransform& step : transforms) {
    HIR_CHECK(step.axis >= 0 && step.axis < std::ssize(leaves));
    const auto at = leaves.begin() + step.axis;
    if (step.kind == LoopTransform::Kind::kMerge) {
      HIR_CHECK(step.axis + 1 < std::ssize(leaves));
      *at = {pool.Mul(at->extent, (at + 1)->extent), -1, at->outermost};
      leaves.erase(at + 1);
      continue;
    }
    const Expr* factor = pool.Const(step.factor);
    const Expr* rest = pool.CeilDiv(at->extent, factor);
    const bool outer = step.kind == LoopTransform::Kind::kOuterSplit;
    Leaf inner = {outer ? rest : factor, at->logical, false};
    at->extent = outer ? factor : rest;
    leaves.insert(at + 1, inner);
  }
  return leaves;
}

}  // namespace hir::ir
