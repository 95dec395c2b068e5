// Inputs and outputs that lie in memory in another order than that of their axes.
#pragma once

#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"
#include "multidevice/plan/localize.h"

namespace hir::host {

// Axes, the outermost in memory first; empty: row-major.
using MemoryOrder = std::vector<int64_t>;

// By input and by output of a program.
struct MemoryOrders {
  std::vector<MemoryOrder> inputs = {};
  std::vector<MemoryOrder> outputs = {};
};

// As `program` declares them (stride_order). An output that replaces an input, and has no order of its own, lies as
// that does. Errors: kInvalidArgument: an output is to replace an input that lies in another order.
Result<MemoryOrders> MemoryOrdersOf(const ir::Graph& program);

// Makes the parameters and outputs of `program` what lies in memory: axes in that order, with a permute behind and in
// front. Boundaries say the order; what they are as a whole stays.
Status LayOut(const MemoryOrders& orders, plan::LocalProgram& program);

}  // namespace hir::host
