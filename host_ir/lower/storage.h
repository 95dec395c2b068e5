// Which values of a local graph share memory with another, and how much memory all ranks have enough with.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// Whether the result of `op` is, element for element, the memory of its first operand: the same
// stored elements in the same order, only seen under another shape. (Broadcast axes are stored
// once, so broadcasting and expanding are views too.)
bool IsView(const ir::Op& op);

// No rank's value of `extent`, which is never negative, is larger. It names no coordinate of a mesh; `extent` itself
// where that names none. Parts of uneven blocks without their padding are shorter on some ranks; memory is as large on
// all. Of the pool of `graph`, which has the meshes.
const ir::Expr* LargestOnAnyRank(ir::Graph& graph, const ir::Expr* extent);

}  // namespace hir::host
