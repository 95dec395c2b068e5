// Ends the life of every alloc after its last use; see deallocate.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status Deallocate(ir::Graph& graph);

}  // namespace hir::host
