// The type rules of the host ops, one a row: kinds of operands, agreement of shapes, types of
// results.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

#define HOST_OP(Name, ...) Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared);
#include "host_ir/host_ops.def"

}  // namespace hir::host
