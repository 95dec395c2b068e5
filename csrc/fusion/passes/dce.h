// Drops ops whose results nothing reads and that have no effect; see dce.cc.
#pragma once

#include "csrc/base/status.h"

namespace hir::ir {
class Graph;
}

namespace hir::fusion {

Status Dce(ir::Graph& graph);

}  // namespace hir::fusion
