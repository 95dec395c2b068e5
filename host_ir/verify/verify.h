// What must hold of a host program beyond the types of its ops: lifetimes, order of conflicting
// accesses, events, communications. The rules are numbered as in docs/host_ops.md.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// Checks every rank's run of the program. Errors: kInvalidArgument "op: (H8) what is wrong, with
// names"; kUnimplemented and kResourceExhausted for what the analysis cannot follow.
Status VerifyHost(const ir::Graph& graph);

// VerifyHost but for the order of conflicting accesses (H8), which assign_streams establishes where ops have streams
// and the program has no events.
Status VerifyUnordered(const ir::Graph& graph);

// VerifyHost, and what passes only establish in the end: every alloc is deallocated (H6).
Status VerifyComplete(const ir::Graph& graph);

}  // namespace hir::host
