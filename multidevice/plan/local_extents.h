// Extents of shards. Private to multidevice/plan.
#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/graph.h"

namespace hir::plan {

// Divides extents of a global program by numbers of shards, in one normal form: where i0 is split 4 ways and so a
// multiple of 4, a fourth of 6*i0 is 6*(i0 / 4), and 4 times i0 / 4 is i0 again.
class LocalExtents {
 public:
  // Results are expressions of `pool`.
  explicit LocalExtents(ir::ExprPool& pool) : pool_(pool) {}

  // Everything that is split must be told first. True when that makes a condition on sizes: extent mod ways = 0, unless
  // the conditions told before imply it.
  bool Require(const ir::Expr* extent, int64_t ways);
  // extent / ways. REQUIRES: it was told, or ways is 1.
  const ir::Expr* Share(const ir::Expr* extent, int64_t ways);

 private:
  const ir::Expr* InFactors(const ir::Expr* extent);
  const ir::Expr* Back(const ir::Expr* extent);

  ir::ExprPool& pool_;
  ir::ExprPool factors_;  // Here a symbol that is a multiple of n stands for its n-th part.
  std::map<std::string_view, int64_t> multiple_of_;
};

// The type of one rank's part.
const ir::Type* ShareType(ir::Graph& graph, LocalExtents& extents, const ir::Type& type,
                          const fusion::Placement& placement);

}  // namespace hir::plan
