// What a schedule may know of sizes, and what it must remember of having asked. Private to csrc/codegen.
#pragma once

#include <optional>
#include <vector>

#include "csrc/codegen/target.h"
#include "csrc/ir/graph.h"

namespace hir::codegen {

// A decision that reads a symbolic extent becomes a guard on the plan: the plan was chosen for the range of sizes in
// which each answer is the same (a bucket), so a size outside is better served by another plan. Answers are few, so
// buckets are: a schedule asks at most three questions of two answers.
class SizeFacts {
 public:
  // Guards are made in `pool`, which outlives them.
  SizeFacts(const Sizes& sizes, ir::ExprPool& pool) : sizes_(&sizes), pool_(&pool) {}

  // Whether `extent` >= `least`, from constants or known sizes; `otherwise` where neither says.
  bool AtLeast(const ir::Expr* extent, int64_t least, bool otherwise);
  // The value of `extent`, where sizes say it. Makes no guard: a caller that decides by the value calls AtLeast, too.
  std::optional<int64_t> ValueOf(const ir::Expr* extent) const;

  const std::vector<ir::Guard>& guards() const { return guards_; }

 private:
  const Sizes* sizes_;
  ir::ExprPool* pool_;
  std::vector<ir::Guard> guards_;
};

}  // namespace hir::codegen
