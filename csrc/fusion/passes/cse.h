// Keeps one of equal ops on equal operands; see cse.cc.
#pragma once

#include "csrc/base/status.h"

namespace hir::ir {
class Graph;
}

namespace hir::fusion {

Status Cse(ir::Graph& graph);

}  // namespace hir::fusion
