// The numbers of guards: the same condition under the same parent has one.
#include "csrc/codegen/guard_table.h"

#include <algorithm>

namespace hir::codegen {

int GuardTable::Add(int parent, const fusion::Element* condition, bool holds) {
  const Guard guard = {parent, condition, holds};
  const auto known = std::find(guards_.begin() + 1, guards_.end(), guard);
  if (known != guards_.end()) return static_cast<int>(known - guards_.begin());
  guards_.push_back(guard);
  return static_cast<int>(guards_.size()) - 1;
}

}  // namespace hir::codegen
