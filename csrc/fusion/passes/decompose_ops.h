// See decompose_ops.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::fusion {

Status DecomposeOps(ir::Graph& graph);
// For devices that have no call for it.
Status DecomposeAttention(ir::Graph& graph);
// All but what IsFused holds of.
Status DecomposeAttentionBeyondCudnn(ir::Graph& graph);

}  // namespace hir::fusion
