// Copies of graphs and of single ops, across graphs.
#pragma once

#include <memory>
#include <unordered_map>

#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"

namespace hir::ir {

std::unique_ptr<Graph> Clone(const Graph& graph);

// Appends a copy of `op` (of any graph over the same table) through `builder`, its operands looked up in `values` (old to
// new; all must be there), and adds its results to `values`, blocks included. Attributes, locations and result names carry
// over; layouts do not. Types are inferred anew; with `declare` they are given as they were, which ops that infer from the
// declared type need (host ops: alloc, event, views).
Result<Op*> CloneOp(const Op& op, Builder& builder, std::unordered_map<const Value*, Value*>& values, bool declare = false);

}  // namespace hir::ir
