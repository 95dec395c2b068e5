// Questions of planning about grouped_matmul and grouped_outer, beside their axes.
#pragma once

#include <cstddef>

#include "csrc/ir/graph.h"

namespace hir::fusion {

// The result's axis of rows, a logical one: rows that ends count, of which a rank may hold a part.
// REQUIRES: `op` is one of the two, as in the next.
size_t RowAxisOf(const ir::Op& op);
// The number of the first row that a rank holds.
const ir::Expr* FirstRowOf(const ir::Op& op);

}  // namespace hir::fusion
