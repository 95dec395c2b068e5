// Refuses what is not ready to run; see host_ir/verify/verify.h, VerifyComplete.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status CheckComplete(ir::Graph& graph);

}  // namespace hir::host
