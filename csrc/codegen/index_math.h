// Index arithmetic of a loop nest as canonical expressions: what is affine in a variable, what a known range
// decides.
// One thread at a time.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "csrc/fusion/element.h"
#include "csrc/ir/expr.h"

namespace hir::codegen {

class IndexMath {
 public:
  // Expressions are made in `pool`, which outlives this.
  explicit IndexMath(ir::ExprPool& pool) : pool_(&pool) {}

  // Loop variable `variable` lies in [low, high], expressions over variables set before, and graph symbols
  // (all >= 0).
  void SetRange(int variable, const ir::Expr* low, const ir::Expr* high);
  struct Range {
    const ir::Expr* low = nullptr;
    const ir::Expr* high = nullptr;
  };
  // REQUIRES: it has been set.
  const Range& RangeOf(int variable) const { return ranges_.at(variable); }
  // It may lie there, too: another phase has other bounds of its loop.
  void WidenRange(int variable, const ir::Expr* low, const ir::Expr* high);
  // As SetRange, while `element`s converted before are forgotten.
  void ResetRange(int variable, const ir::Expr* low, const ir::Expr* high);

  // `element` (i64) as an expression; null when it is not arithmetic on indices and extents, or is not certain to have
  // the element's value: a quotient of what may be negative, numbers that may leave 64 bits.
  const ir::Expr* ToExpr(const fusion::Element* element);
  // A condition on indices alone.
  bool IsIndexCondition(const fusion::Element* element);
  // Whether the condition of `select` says which loads of its sides are of elements that exist: it is one on indices,
  // or one on data that a side has for an index (a gather from concatenated or padded tensors), be that computed of
  // indices and numbers of the host alone, in a way that ToExpr does not know.
  bool GuardsSides(const fusion::Element* select);
  // What the ranges say of such a condition; nothing when it varies.
  std::optional<bool> Decide(const fusion::Element* element);

  // A condition on one variable alone: whether it is below `end`, or, where not `below`, whether it is not.
  struct Threshold {
    int variable = -1;
    const ir::Expr* end = nullptr;  // Free of variables.
    bool below = true;
  };
  // Nothing where `condition` is no such one.
  std::optional<Threshold> ThresholdOf(const fusion::Element* condition);

  // Bounds over all variables; null when there is no simple one.
  const ir::Expr* Upper(const ir::Expr* expr);
  const ir::Expr* Lower(const ir::Expr* expr);
  // Whether expr >= 0 for certain.
  bool NonNegative(const ir::Expr* expr);

  struct Affine {
    const ir::Expr* base = nullptr;    // Free of the variable.
    const ir::Expr* stride = nullptr;  // Free of the variable.
  };
  // expr = base + stride * variable; nothing when it is not of that form.
  std::optional<Affine> Split(const ir::Expr* expr, int variable);
  bool DependsOn(const ir::Expr* expr, int variable);

  ir::ExprPool& pool() { return *pool_; }

 private:
  const ir::Expr* Convert(const fusion::Element* element);
  // Whether it is a load, or there is one below it, at an index that is neither data nor an expression.
  bool IsAtComputedIndex(const fusion::Element* element);
  static const ir::Expr* Bounded(const ir::Expr* expr);  // Null where its numbers are large.
  static bool HasVariable(const ir::Expr* expr);
  const ir::Expr* Bound(const ir::Expr* expr, bool upper, int depth);
  const ir::Expr* BoundAtom(const ir::Expr* atom, bool upper, int depth);
  const ir::Expr* DivMod(const ir::Expr* a, const ir::Expr* b, bool mod);

  ir::ExprPool* pool_;
  std::unordered_map<int, Range> ranges_;
  std::unordered_map<const fusion::Element*, const ir::Expr*> converted_;
};

}  // namespace hir::codegen
