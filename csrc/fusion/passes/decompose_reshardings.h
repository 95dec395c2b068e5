// Makes every communication an op of its own.
#pragma once

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// Whether ranks need data of each other, or a part of what they hold, for `op`: an operand does not lie as the result's
// layout asks. REQUIRES: its tensors have layouts that PlacementOf accepts.
bool IsResharding(const ir::Op& op);

// See decompose_reshardings.cc. Afterwards only `set` ops reshard, and partial results are read by such a set alone.
// Errors: those of CheckHasLayouts (ready.h) and PlacementOf.
Status DecomposeReshardings(ir::Graph& graph);

// How partial results of `op` are put together: "sum", "prod", "min" or "max". REQUIRES: it reduces or contracts.
std::string_view ReduceName(const ir::Op& op);

}  // namespace hir::fusion
