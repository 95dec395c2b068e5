// Makes one permute of several in a row; see fold_permutes.cc.
#pragma once

#include "csrc/base/status.h"

namespace hir::ir {
class Graph;
}

namespace hir::fusion {

Status FoldPermutes(ir::Graph& graph);

}  // namespace hir::fusion
