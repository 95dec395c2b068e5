// Axes that a composite op takes away: its type, and the loops of one element. Private to csrc/fusion.
#pragma once

#include <vector>

#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// Brings the attribute `axes` into its one form, in which nothing means all of the `count` axes: what it is then.
Result<std::vector<int64_t>> NormalReduced(ir::Graph& graph, ir::Op& op, size_t count);
// As NormalReduced, and sets the result's type: `dtype`, without those axes or, where `keepdim` says so, with extent 1
// there.
Status InferReduced(ir::Graph& graph, ir::Op& op, DType dtype);
// The axes of the result of taking `reduced`, ascending, away from `axes`.
std::vector<ir::Axis> ReducedAxes(ir::Graph& graph, const std::vector<ir::Axis>& axes, std::span<const int64_t> reduced,
                                  bool keepdim);

// Axis `axis` of operand 0, which has `axes`, has an element, without which there is no result.
Status RequireElements(ir::Graph& graph, const ir::Op& op, const std::vector<ir::Axis>& axes, size_t axis);

// The elements of operand 0 that go into one of the result: a variable for each reduced axis.
struct ReducedLoops {
  int first = 0;
  std::vector<const ir::Expr*> trips;
  std::vector<const Element*> index;  // Of the operand.
};
ReducedLoops LoopsOver(ElementBuilder& builder, const ir::Op& op, std::span<const int64_t> reduced, Index index);

// `x` in the type of op's result: a reduction's own type has the reduced axes still, as r:.
ir::Value* WithoutReductionAxes(ir::Builder& builder, const ir::Op& op, ir::Value* x);

}  // namespace hir::fusion
