// From a segmented local graph to the host program that every rank runs.
//
// Every group becomes one of: a communication, a library call, views (no work at all), or the
// launches of a kernel plan. The program is the same on all ranks; extents, mesh coordinates and
// membership are symbols that each rank binds.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::host {

enum class SegmentKind { kKernel, kLibrary, kCommunication, kView };
std::string_view SegmentKindName(SegmentKind kind);  // "kernel", "library", "communication", "view"

// What became of one group, for `explain`.
struct LoweredSegment {
  SegmentKind kind = SegmentKind::kKernel;
  std::string name;       // "k0", "matmul", "allreduce"
  std::string schedule;   // Of a kernel; of a library call its epilogue and precision ("relu, tf32"); else empty.
  int launches = 0;       // Kernel launches, library calls or communications.
  int64_t first_seq = 0;  // Of a communication: the `seq` of its first one; they have no gaps.
};

struct Lowered {
  // Parameters: the local graph's, in order, then one for each distinct computed output. `return`
  // names one parameter for each output of the local graph. Everything is on stream 0, without
  // events: the host passes come next.
  std::unique_ptr<ir::Graph> program;
  std::vector<codegen::KernelPlan> kernels;  // Their expressions belong to the local graph.
  std::vector<LoweredSegment> segments;      // One for each group.
};

// `groups` partition the ops of `local` in topological order. Both outlive the result. Kernels are planned for
// `target` and `sizes`, values of symbols of `local`.
// Errors: those of codegen::Plan, for the group it refused.
Result<Lowered> Lower(ir::Graph& local, std::span<const segment::Group> groups, const codegen::Target& target,
                      const codegen::Sizes& sizes);

}  // namespace hir::host
