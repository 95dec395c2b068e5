// What ops whose indices are data share. Private to csrc/fusion.
#pragma once

#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// Operand `i` holds integers.
Status CheckIndices(const ir::Op& op, int i);
// Axis `axis` of operand 0 has an element to read.
Status RequireSome(ir::Graph& graph, const ir::Op& op, const std::vector<ir::Axis>& x, size_t axis);
// A place on an axis of `extent` as users give it: what is negative counts from the end, what is outside of
// [-extent, extent) becomes the nearer end.
const Element* PlaceInside(ElementBuilder& builder, const Element* place, const ir::Expr* extent);
// `x` from `start` to `end`, which have one entry an axis.
ir::Value* SliceTo(ir::Builder& builder, ir::Value* x, const std::vector<const ir::Expr*>& start,
                   const std::vector<const ir::Expr*>& end);

}  // namespace hir::fusion
