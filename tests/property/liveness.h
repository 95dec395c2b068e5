// How much memory the intermediates of a host program need at least, found without host_ir/pool_plan.h and its clocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/fusion/interpret/bind.h"
#include "csrc/ir/graph.h"

namespace hir::testing {

// In bytes, every alloc rounded up to the pool's alignment. An alloc lives from the first work on it to the last.
struct PoolBounds {
  int64_t peak = 0;  // What the planned pool takes.
  // The most that lives at one place of the program's order; the communications of a group are one place.
  int64_t in_order = 0;
  // The most that may live at once: the heaviest set of allocs of which none is known to be over, by streams and
  // events, before another begins. Loops of which the program does not say how often they run may end
  // after any iteration. It is in_order where all work is on one stream, and at least that elsewhere.
  int64_t side_by_side = 0;

  auto operator<=>(const PoolBounds&) const = default;
};

// Of `rank`; `sizes` has a value for each symbol of the program. Errors: those of Unroll and PoolPlan; kInternal where
// two allocs share bytes and neither is known to be over before the other begins.
Result<PoolBounds> BoundPool(const ir::Graph& host, int64_t rank, const fusion::SymbolValues& sizes);

// Of the ranks below `num_ranks`, equal ones once. Errors: the same.
Result<std::vector<PoolBounds>> BoundPools(const ir::Graph& host, int64_t num_ranks, const fusion::SymbolValues& sizes);

// How much larger the peak is than side_by_side; 1 where nothing lives.
double RatioOf(const PoolBounds& bounds);
constexpr double kPoolRatioMax = 1.05;

}  // namespace hir::testing
