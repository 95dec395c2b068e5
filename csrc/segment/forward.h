// Forwarding: what costs nothing to compute again is computed again where it is needed, instead of
// passing through memory.
#pragma once

#include <functional>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::segment {

// Ops of one chain that are copied together; a longer chain is computed once.
inline constexpr int kForwardDepthMax = 8;

// Gives each reader its own copy of a forwardable op: a factory (constant, full), or an op of one
// tensor that is an input of the program or forwardable itself, whose result takes at least as many
// bytes as what it reads (a widening cast, a broadcast). So a segment boundary never carries such a
// value: a cast to f32 is redone from the bf16 input, a tensor of zeros is made where it is used.
// Results that the program returns stay single, and one serves all readers that take it from memory: those that are no
// kernels (library calls), and segment_set.
//
// Before: %f = cast(%x)  %a = exp(%f)  %b = sum(%f)
// After:  %f = cast(%x)  %a = exp(%f)  %f.1 = cast(%x)  %b = sum(%f.1)
//
// Scalars of the host, which no kernel makes for another, are copied in any case, tensors only if `tensors` is set.
Status Forward(ir::Graph& graph, bool tensors = true, const Sizes& sizes = {});

// Undoes what forwarding did within each group: of equal pure ops of one group the first stays. Where `fits` refuses
// what a group would be then, it keeps its copies: a sequence that one reader takes along rows and another along
// columns has two indices in one kernel, and a kernel that reduces has one for each value.
void MergeCopies(ir::Graph& graph, std::vector<Group>& groups, const std::function<bool(const GroupView&)>& fits);

}  // namespace hir::segment
