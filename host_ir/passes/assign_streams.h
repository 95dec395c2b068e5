// Moves communications to a stream of their own, and orders the streams; see assign_streams.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status AssignStreams(ir::Graph& graph);

}  // namespace hir::host
