// Shortens chains of casts that keep every value; see fold_casts.cc.
#pragma once

#include "csrc/base/status.h"

namespace hir::ir {
class Graph;
}

namespace hir::fusion {

Status FoldCasts(ir::Graph& graph);

}  // namespace hir::fusion
