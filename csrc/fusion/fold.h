// What an ElementBuilder simplifies as it builds: constants, and what index arithmetic makes trivial. Private to
// csrc/fusion.
#pragma once

#include <span>

#include "csrc/fusion/element.h"

namespace hir::fusion {

// Something equal to `prim` of `args` and simpler, or null. Exact for integers; for floats only what IEEE arithmetic
// keeps bit by bit (x - 0, x * 1), and powers with the exponents -1, 0, 1, 2, 3.
const Element* Fold(ElementBuilder& builder, Prim prim, std::span<const Element* const> args);
// The same for a conversion of `x` to another type.
const Element* FoldConvert(ElementBuilder& builder, DType dtype, const Element* x);

}  // namespace hir::fusion
