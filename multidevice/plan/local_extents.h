// Extents of shards. Private to multidevice/plan.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/graph.h"
#include "multidevice/plan/localize.h"

namespace hir::plan {

// Divides extents of a global program by numbers of shards, in one normal form: where i0 is split 4 ways and so a
// multiple of 4, a fourth of 6*i0 is 6*(i0 / 4), and 4 times i0 / 4 is i0 again.
class LocalExtents {
 public:
  // Results are expressions of `pool`.
  explicit LocalExtents(ir::ExprPool& pool, const SymbolSizes& sizes) : pool_(pool), sizes_(sizes) {}

  // What `extent` is for the sizes at hand, or a guess.
  int64_t Estimate(const ir::Expr* extent) const;
  // Everything that is split must be told first. True when that makes a condition on sizes: extent mod ways = 0, unless
  // the conditions told before imply it.
  bool Require(const ir::Expr* extent, int64_t ways);
  // Instead: `extent` is split into blocks that may be uneven. Its parts are ceil-sized blocks, the last ones padded.
  void AllowUneven(const ir::Expr* extent) { uneven_.insert(pool_.Import(extent)); }
  bool IsUneven(const ir::Expr* extent) const { return uneven_.contains(pool_.Import(extent)); }
  // Whether the sizes at hand say what `extent` is.
  bool IsAtHand(const ir::Expr* extent) const;
  // Whether the sizes at hand split `extent` evenly; true for symbolic ones where nothing is at hand.
  bool LooksEven(const ir::Expr* extent, int64_t ways) const;
  // extent / ways, or the ceiling of it. REQUIRES: it was told, or ways is 1.
  const ir::Expr* Share(const ir::Expr* extent, int64_t ways);

 private:
  const ir::Expr* InFactors(const ir::Expr* extent);
  const ir::Expr* Back(const ir::Expr* extent);

  ir::ExprPool& pool_;
  const SymbolSizes& sizes_;
  std::set<const ir::Expr*> uneven_;  // Of pool_.
  ir::ExprPool factors_;              // Here a symbol that is a multiple of n stands for its n-th part.
  std::map<std::string_view, int64_t> multiple_of_;
};

// The type of one rank's part.
const ir::Type* ShareType(ir::Graph& graph, LocalExtents& extents, const ir::Type& type,
                          const fusion::Placement& placement);

}  // namespace hir::plan
