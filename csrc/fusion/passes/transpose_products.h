// Products take and make what is transposed as it lies in memory.
#pragma once

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

Status TransposeProducts(ir::Graph& graph);

}  // namespace hir::fusion
