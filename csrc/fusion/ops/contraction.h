// What matmul and linear share. Private to csrc/fusion.
#pragma once

#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {

// The one element type of all operands; bools and mixtures are refused.
Result<DType> ContractionType(const ir::Op& op);
// sum over k < extent of x * y, of the result's dtype: the loads are given as functions of k.
const Element* SumOfProducts(ElementBuilder& builder, DType dtype, const ir::Expr* extent,
                             const ir::Value* x, std::vector<const Element*> x_index, size_t x_axis,
                             const ir::Value* y, std::vector<const Element*> y_index,
                             size_t y_axis);

}  // namespace hir::fusion
