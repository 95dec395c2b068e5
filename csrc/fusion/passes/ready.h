// What a pass asks of the passes before it. Whoever names passes chooses their order: one that is missing is an error,
// not a bug.
#pragma once

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// Whether the axes of every op are known: none is composite, or a communication of one rank's program.
// Errors: kFailedPrecondition naming the op and the pass that is missing.
Status CheckHasAxes(const ir::Graph& graph);
// CheckHasAxes, and whether every tensor has a layout.
Status CheckHasLayouts(const ir::Graph& graph);

}  // namespace hir::fusion
