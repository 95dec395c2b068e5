// Moves communications to a stream of their own; see assign_streams.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status AssignStreams(ir::Graph& graph);

// The second half of it: orders the streams that the ops have by events, where bytes cross between
// them.
Status OrderStreams(ir::Graph& graph);

}  // namespace hir::host
