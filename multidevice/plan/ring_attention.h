// Attention of queries and keys that are both split along the sequence: keys go round the ranks, in place of being
// gathered on each.
#pragma once

#include "multidevice/plan/localize.h"

namespace hir::plan {

// Where `limits` say that it pays.
void PassKeysRound(LocalProgram& program, const OverlapLimits& limits);

}  // namespace hir::plan
