// Which products (matmul, linear) of a local program are library calls, and what those calls do besides.
#pragma once

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/codegen/target.h"
#include "csrc/ir/graph.h"

namespace hir::host {

// Fits the products of `local` to the library of `target` (csrc/codegen/library/abilities.h):
//
// - A product of a type that the library lacks becomes a sum of products, for kernels.
// - A bias and an activation behind a product become a part of it, where nothing else reads what is between and
//   the library has the activation. Sums then are rounded once, behind the activation, where the ops round in between:
//   docs/decisions/0005-epilogues-round-once.md. A cast to f32 before the activation and back behind it goes with it.
// - A product takes an operand as it was before a permute of its last two axes, whatever else reads the permuted one;
//   not its first where its result is exchanged, part by part perhaps (overlap.h).
//
// Before: %p = matmul(%x, %w)   %s = add(%p, %b)   %y = relu(%s)
// After:  %y = matmul(%x, %w, %b) {epilogue=relu}
// `strides`: of values that have gaps. A product takes over no bias and no result whose rows have gaps.
Status FitProducts(ir::Graph& local, const codegen::Target& target, const codegen::Strides& strides = {});

// The library whose products `target` has.
codegen::library::Provider ProviderOf(const codegen::Target& target);

// Whether the elements of a row of `value` lie apart, which library calls do not know.
bool RowsHaveGaps(const ir::Value& value, const codegen::Strides& strides);

}  // namespace hir::host
