// Along which loops memory is contiguous: every access of a region votes. Private to csrc/codegen and its backends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen {

// By loop variable. An access to a larger tensor, which varies along more loops, counts more.
struct AxisVotes {
  std::map<int, int64_t> loads, stores;
  // Accesses that are contiguous along the first variable and vary along the second, too: whoever walks along that one
  // reads a transposition. Stores count twice.
  std::map<std::pair<int, int>, int64_t> across;

  // Loads and stores together: a store counts twice.
  std::map<int, int64_t> All() const;
};

// The strides of a value that is loaded; null where no tensor is behind it.
using StridesOf = std::function<const std::vector<const ir::Expr*>*(const ir::Value*)>;

// `math` knows the ranges of the region's variables. In a region with loops those in loops vote: what is done once for
// each row, a result or a part of it, is little.
AxisVotes VotesOf(const Region& region, const std::vector<Tensor>& tensors, const StridesOf& strides, IndexMath& math);

}  // namespace hir::codegen
