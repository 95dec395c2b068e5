// Orders what a program has on several streams; see order_streams.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// REQUIRES: no events. Errors: those of Unroll; kUnimplemented for streams that change in a loop that begins at no
// constant.
Status OrderStreams(ir::Graph& graph);

}  // namespace hir::host
