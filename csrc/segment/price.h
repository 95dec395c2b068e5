// The price of computing, in bytes: those that pass through memory in its time.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/ir/graph.h"

namespace hir::segment {

// The arithmetic of one element of the result of `op`, of its operands' elements: 0 for sums and products, 4 for an
// exp, 16 for a sine. Nothing where a reduction makes it.
// REQUIRES: an op that makes elements: no communication, no library call.
std::optional<int64_t> PriceOfElement(const ir::Op& op);

}  // namespace hir::segment
