// The pipeline: a program to what every rank runs. This page and pipeline.cc are the order of everything.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"
#include "host_ir/lower/lower.h"
#include "host_ir/lower/segmentation.h"
#include "multidevice/plan/localize.h"

namespace hir::host {

// All stages of one program; what points into a graph lives as long as this.
struct ProgramPlan {
  std::unique_ptr<ir::Graph> global;     // Simplified, every value with its sharding, reshardings alone in a `set`.
  plan::LocalProgram local;              // One rank's program.
  std::unique_ptr<Segmented> segmented;  // local.graph, its stream loops and all groups.
  std::vector<LoweredSegment> segments;  // What became of the groups, those of loops included.
  std::vector<codegen::KernelPlan> kernels;
  std::unique_ptr<ir::Graph> host;  // The host program, streams and deallocations included.
  // For people: which products run beside their communications, and which keys of attention go round.
  std::vector<std::string> notes = {};
  // Sizes that the plan was made for alone: its inputs have them as constants.
  codegen::Sizes pinned = {};
  // See LeastShared.
  codegen::Sizes least_shared = {};
};

// Whether products run in parts beside their communications.
enum class OverlapChoice : uint8_t {
  kChosen,  // Where it pays on the target (OverlapLimitsOf).
  kNever,
  kAlways,  // Wherever it can be.
};
inline constexpr OverlapChoice kOverlapChoices[] = {OverlapChoice::kChosen, OverlapChoice::kNever,
                                                    OverlapChoice::kAlways};
std::string_view OverlapChoiceName(OverlapChoice choice);  // "chosen"
// Above these it was never slower, as measured (docs/performance.md). Within a node none on CPUs: the cores that
// multiply are those that copy.
plan::OverlapLimits OverlapLimitsOf(const codegen::Target& target, const plan::Links& links = {});

struct PlanOptions {
  int64_t num_devices = 1;
  codegen::Target target = {};       // What the kernels are for.
  codegen::Sizes sizes = {};         // Values of the program's symbols, where known: they choose schedules.
  int64_t resharding_bytes_max = 0;  // Of one resharding on one rank: plan::LocalizeOptions.
  plan::Links links = {};            // Between the nodes of the devices.
  int streams = 4;                   // Over which stream loops rotate; in [1, kLoopStreamsMax].
  OverlapChoice overlap = OverlapChoice::kChosen;
  // How kernels are cut; nothing: as the program says, by name. Loops and their chunks stand before.
  std::optional<Segmentation> segmentation = {};
  // Optional passes that do not run, with commas between: OptionalPasses(). For finding out what each brings, and which
  // one is wrong.
  std::string_view without = {};
};

// `program`: a user's program, verified. A size of 1 is a constant of its plan. Where the sizes at hand make blocks
// uneven that some op cannot take, all are: known early enough to gather what the op reads.
// Errors: kInvalidArgument, kUnimplemented: what is wrong with the program, with op, value and the user's location.
// Deterministic: equal programs give equal plans.
Result<ProgramPlan> PlanProgram(std::unique_ptr<ir::Graph> program, const PlanOptions& options);

// A communication of the plan, and the numbers it has in the host program: `seq` from `first` on.
struct QueuedCommunication {
  const plan::Communication* communication = nullptr;  // Of the plan.
  size_t segment = 0;                                  // Its segment's index.
  int64_t first = 0;
  int64_t count = 0;
};

// In the order in which they are queued, which need not be the program's: local.communications has that.
std::vector<QueuedCommunication> CommunicationsInQueueOrder(const ProgramPlan& plan);

// "a = cast", "b = sum".
std::vector<std::string> OpsOf(const LoweredSegment& segment);

// The segments, one line each, for goldens and dumps:
//   k0: kernel reduction: a = cast, b = sum (x -> b)
std::string DescribeSegments(const ProgramPlan& plan);

}  // namespace hir::host
