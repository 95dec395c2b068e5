// What must hold of every graph, whichever table it is over.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::ir {

// Names unique, values defined before use and in scope, attributes present and of their kinds, mesh
// types at most once in a loop domain, outputs in scope; then the op set's own checks. Errors:
// kInvalidArgument naming op or value.
Status Verify(const Graph& graph);

}  // namespace hir::ir
