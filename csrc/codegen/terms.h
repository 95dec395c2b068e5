// Sums of products, for reductions whose factors vary along some loops only. Private to csrc/codegen and its folders.
#pragma once

#include <functional>
#include <vector>

#include "csrc/fusion/element.h"

namespace hir::codegen {

// A product: of what is the same in all iterations of a loop, and of what is not.
struct Term {
  std::vector<const fusion::Element*> slow, fast;
};

// A float32 body as a sum of at most four terms, where that takes something out of the loop; else as one term. What is
// no sum or product of such parts stays whole, so that nothing cancels that did not before. Every term has fast parts.
// `is_fast`: whether an element varies in the loop.
std::vector<Term> TermsOf(const fusion::Element* body, const std::function<bool(const fusion::Element*)>& is_fast);

}  // namespace hir::codegen
