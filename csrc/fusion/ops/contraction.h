// What matmul and linear share. Private to csrc/fusion.
#pragma once

#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// The one element type of all operands; bools and mixtures are refused, and epilogues and precisions that it has not.
Result<DType> ContractionType(const ir::Op& op);
// The bias has one axis, of extent `columns`, an axis of operand `weight`.
Status CheckBias(ir::Graph& graph, const ir::Op& op, size_t weight, size_t weight_axis);
// `sum`, plus the element of the bias at `column` where there is a third operand, through the epilogue; rounded to the
// result's type once.
const Element* Finished(ElementBuilder& builder, const ir::Op& op, const Element* sum, const Element* column);
// sum over k < extent of x * y, of the result's dtype: the loads are given as functions of k.
const Element* SumOfProducts(ElementBuilder& builder, DType dtype, const ir::Expr* extent, const ir::Value* x,
                             std::vector<const Element*> x_index, size_t x_axis, const ir::Value* y,
                             std::vector<const Element*> y_index, size_t y_axis);

}  // namespace hir::fusion
