// What must hold of a fusion program beyond its ops' own rules.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::fusion {

// Outputs are tensors. Part of ir::Verify for every fusion graph.
Status CheckOutputs(const ir::Graph& graph);

// A program as a user may send it: it has outputs, no communications, no mesh coordinates in extents, and the symbols
// of every extent are the extents of inputs. Errors: kInvalidArgument naming op and value.
Status CheckUserProgram(const ir::Graph& graph);

}  // namespace hir::fusion
