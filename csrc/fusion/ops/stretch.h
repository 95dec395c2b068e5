// One axis brought to a given extent, as expand and broadcast_in_dim do. Private to csrc/fusion.
#pragma once

#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// `axis` of `value`, numbered `number`, as axis `at` of a result of `extent`: extent 1 becomes a broadcast axis of it,
// any other must be equal.
Result<ir::Axis> Stretch(ir::Graph& graph, const ir::Value& value, size_t number, const ir::Axis& axis, size_t at,
                         const ir::Expr* extent);

}  // namespace hir::fusion
