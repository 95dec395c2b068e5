// How a local program is cut into kernels, library calls and communications, and in which order they are queued.
#pragma once

#include <string_view>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/segment/segment.h"

namespace hir::host {

// Two groups become one when the result
//   (1) holds only pure ops: never a communication or a library call, which are host-level ops on
//   their own; (2) lies on one mesh: ranks that do not hold a value do not compute it; (3) has no
//   segment_set behind what it copies: that boundary binds; (4) fits one kernel (codegen::Accepts), which costs no more
//   than both (codegen::Cost); and those that share no tensor have the same schedule.
// The gain is the bytes that are not moved any more.
std::optional<segment::Gain> OneKernelHoldsIt(const segment::GroupView& producer, const segment::GroupView& consumer,
                                              const segment::GroupView& merged, codegen::Acceptance& acceptance);

// At least its gain, without asking what one kernel can hold or costs.
std::optional<segment::Gain> GainOfOneKernel(const segment::GroupView& producer, const segment::GroupView& consumer,
                                             const segment::GroupView& merged, codegen::Acceptance& acceptance);

// The groups in the order in which they are to be queued: still topological, communications as early as what they
// need allows, and what needs a communication's result behind what does not, so that there is work while ranks
// talk. What is passed on has its turn, or all that goes round would be in memory at once. Small communications of one
// team stand side by side where nothing needs the earlier ones before. Otherwise as given.
std::vector<segment::Group> OrderForOverlap(std::vector<segment::Group> groups);

// Whether it is a permute of what another permute brought, as the steps of a ring are.
bool PassesOn(const ir::Op& op);

// Rules (1) to (4) for a group on its own.
bool FitsOneKernel(const segment::GroupView& group);

// How a program is cut, at two levels: into pieces, and each piece into what runs as one kernel, library call or
// communication. Any rule gives a right plan: two groups become one kernel only by rules (1) to (4), whoever else says
// so.
struct Segmentation {
  segment::ShouldMerge pieces = {};   // Null: all of it is one piece. Ops of any kind may be in one.
  segment::ShouldMerge kernels = {};  // Null: OneKernelHoldsIt. Asked where (1) to (3) hold.
  // Whether ops are also copied, moved or left out where that saves bytes: forwarding, rematerialization, views.
  bool saves_bytes = true;
};

// By name:
//   fusing       the default: what costs no more in one kernel
//   reshardings  cut at reshardings and library calls alone: whatever one kernel holds, whether that saves anything
//                or not
//   one_op       each op on its own
// Errors: kInvalidArgument for another name, with the nearest.
Result<Segmentation> SegmentationNamed(std::string_view name);

// The groups of `graph`, by its rules; bytes are those of `sizes`, kernels those of `target`.
// Errors: the first of a rule's.
Result<std::vector<segment::Group>> GroupsOf(const ir::Graph& graph, const Segmentation& segmentation,
                                             const segment::Sizes& sizes = {}, const codegen::Target& target = {});

}  // namespace hir::host
