// Reshapes of what a reduction made, as late as can be; and in front of one, as early.
#pragma once

#include <unordered_set>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::segment {

// A reshape that joins axes of a value that depends on a reduction goes behind the pointwise ops that read it, whose
// other operands are split instead: one kernel then holds both, since its rows are those of the reduction to the end.
// As the last op the reshape is a view (take_out_views.h).
//
// Before: %g: [2, 3, 4] = mul(%x, %r: [2, b, b])  %f = reshape(%g) {shape=[6, 4]}  %y = mul(%f, %w: [6, b])
// After:  %g = mul(%x, %r)  %s = reshape(%w) {shape=[2, 3, 1]}  %h = mul(%g, %s)   %y = reshape(%h) {shape=[6, 4]}
//
// A reduction of all that such a reshape joins reduces what was reshaped.
//
// Before: %g = mul(%x, %r)  %f = reshape(%g) {shape=[6, 4]}  %t = sum(%f) {axes=[0]}
// After:  %g = mul(%x, %r)  %f = reshape(%g) {shape=[6, 4]}  %t = sum(%g) {axes=[0, 1]}
//
// What is returned, and read by a reshape alone that splits it for a reduction, is computed split: the kernel of that
// reduction writes it, too.
//
// Before: %s = add(%x, %y), returned  %g = reshape(%s) {shape=[2, 3, 4]}  %t = sum(%g) {axes=[1, 2]}
// After:  %g = add(reshape(%x), reshape(%y))  %t = sum(%g) {axes=[1, 2]}  %s = reshape(%g) {shape=[6, 4]}, a view
//
// So is a cast of it, and the like, that is returned.
Status SinkReshapes(ir::Graph& graph);

// Whether `op` is a reshape that joins axes of such a value, which nothing else reads, and nothing computes with its
// result: library calls read it, or the program returns it.
class LateReshapes {
 public:
  explicit LateReshapes(const ir::Graph& graph);
  bool Has(const ir::Op& op) const { return late_.contains(&op); }

 private:
  std::unordered_set<const ir::Op*> late_;  // Lookups only.
};

}  // namespace hir::segment
