// From a segmented local graph to the host program that every rank runs.
//
// Every group becomes one of: a communication, a library call, views (no work at all), the
// launches of a kernel plan, or a loop over the groups of its body. The program is the same on all
// ranks; extents, mesh coordinates and membership are symbols that each rank binds.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"
#include "host_ir/lower/stream_loops.h"
#include "multidevice/plan/localize.h"

namespace hir::host {

enum class SegmentKind { kKernel, kLibrary, kCommunication, kView, kLoop };
std::string_view SegmentKindName(SegmentKind kind);  // "kernel", "library", "communication", "view", "loop"

// What became of one group, for `explain`.
struct LoweredSegment {
  const segment::Group* group = nullptr;
  const StreamLoop* loop = nullptr;  // That one iteration of it is in, the innermost; of a loop the one around it.
  bool in_rest = false;              // Of that loop's last, short iteration.
  SegmentKind kind = SegmentKind::kKernel;
  std::string name;  // "k0", "matmul", "allreduce", "loop0"
  // A kernel's; a library call's epilogue and precision ("relu, tf32"); the axis that a loop goes through, and its
  // number of streams ("axis 0 in 4 chunks, 3 streams"); else empty.
  std::string schedule;
  int kernel = -1;        // Of a kernel: its index among the plans of kernels.
  int launches = 0;       // Kernel launches, library calls or communications.
  int64_t first_seq = 0;  // Of a communication: the `seq` of its first one; they have no gaps.
};

struct Lowered {
  // Parameters: the local graph's, in order, then one for each distinct computed output. `return`
  // names one parameter for each output of the local graph. Iterations of loops are on streams from 2 on in turns, all
  // else is on stream 0; there are no events: the host passes come next.
  std::unique_ptr<ir::Graph> program;
  std::vector<codegen::KernelPlan> kernels;  // Their expressions belong to the local graph.
  std::vector<LoweredSegment> segments;      // One for each group, those of a loop's body behind the loop.
};

struct LowerOptions {
  codegen::Target target = {};       // What kernels are planned for.
  codegen::Sizes sizes = {};         // Values of symbols of the program.
  int streams = 4;                   // Over which loops rotate; in [1, kLoopStreamsMax].
  plan::OverlapLimits overlap = {};  // Products in parts (overlap.h).
};

// The groups of `program`, and of the bodies of its loops, partition the ops of their graphs in topological order. It
// outlives the result, which points into it.
// Errors: those of codegen::Plan, for the group it refused.
Result<Lowered> Lower(const Segmented& program, const LowerOptions& options);

}  // namespace hir::host
