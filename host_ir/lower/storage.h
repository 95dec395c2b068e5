// Which values of a local graph share memory with another.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

// Whether the result of `op` is, element for element, the memory of its first operand: the same
// stored elements in the same order, only seen under another shape. (Broadcast axes are stored
// once, so broadcasting and expanding are views too.)
bool IsView(const ir::Op& op);

}  // namespace hir::host
