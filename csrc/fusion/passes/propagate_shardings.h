// Gives every tensor of a program a layout.
#pragma once

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// See propagate_shardings.cc. Afterwards no tensor's layout is null; those that were set are as they were.
// Errors: those of CheckHasAxes (ready.h); those of PlacementOf, with the place in the user's program.
Status PropagateShardings(ir::Graph& graph);

}  // namespace hir::fusion
