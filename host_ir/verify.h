// What must hold of a host program beyond the types of its ops: lifetimes, order of conflicting accesses, events,
// communications. The rules are numbered as in docs/host_ops.md.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// Errors: kInvalidArgument "op: (H4) what is wrong, with names"; kUnimplemented for what the analysis cannot follow.
Status VerifyHost(const ir::Graph& graph);

}  // namespace hir::host
