// Copies of graphs and of single ops, across graphs.
#pragma once

#include <memory>
#include <unordered_map>

#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"

namespace hir::ir {

std::unique_ptr<Graph> Clone(const Graph& graph);

// Appends a copy of `op` (of any graph over the same table) through `builder`, its operands looked
// up in `values` (old to new; all must be there), and adds its results to `values`, blocks
// included. Attributes, locations and result names carry over; layouts do not. Types are inferred
// anew, except where the op set declares them (OpSet::declares).
Result<Op*> CloneOp(const Op& op, Builder& builder, std::unordered_map<const Value*, Value*>& values);

// The same program with all types inferred anew from what is known of its sizes by now: a size
// found to be 1 or equal to another after an op was built may change what that op infers. Layouts
// and guards carry over. Errors: as Builder::Add, with the line.
Result<std::unique_ptr<Graph>> Rebuild(const Graph& graph);

inline constexpr int kSettleRoundsMax = 8;
inline constexpr int64_t kTermsMax = 1 << 22;  // Terms and factors of all types and attributes as printed.
// Rebuilds until no size is replaced any more, so that the printed text infers to the same program.
// Errors: those of Rebuild; kResourceExhausted for the limits above.
Result<std::unique_ptr<Graph>> Settle(std::unique_ptr<Graph> graph);

}  // namespace hir::ir
