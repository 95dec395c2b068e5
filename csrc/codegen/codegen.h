// From a segment to kernels: whether one kernel can hold it, how it is launched, and the loop nest that a backend
// (codegen/cpu, codegen/gpu) turns into code. Nothing here knows a device.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/target.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::codegen {

// Whether the ops of `group` fit one kernel (one to three launches). Pure; looks at structure and at sizes
// that are constants.
struct Verdict {
  bool accepted = false;
  std::string reason;       // When refused, for `explain`.
  std::string schedule;     // When accepted: "pointwise", "reduction", "normalization", ...
  bool is_starved = false;  // Whatever the sizes of symbols, it keeps few processors busy: better several kernels.
};
Verdict Accepts(const segment::GroupView& group);
// Answers as Accepts for many groups of one graph, which must not change: it asks of each op once. What is starved
// depends on the device, and on the sizes at hand. Not thread-safe.
class Acceptance {
 public:
  explicit Acceptance(const Target& target = {}, const Sizes& sizes = {});
  ~Acceptance();
  Verdict Of(const segment::GroupView& group);

 private:
  std::unique_ptr<class OpAxes> axes_;
  const Sizes sizes_;
  const int64_t short_row_, few_rows_;
};

struct Workspace {
  const ir::Expr* bytes = nullptr;
  bool zeroed = false;
};

// One launch. The argument slots of the kernel are: the tensors (addresses), the workspaces, the extents
// (values of `extents`
// when launched), the host scalars (the bits of the f64, or the int64).
struct Launch {
  std::string kernel;                     // Unique within the plan: "<name>" or "<name>.1".
  std::vector<const ir::Value*> inputs;   // Tensors read.
  std::vector<const ir::Value*> outputs;  // Tensors written.
  std::vector<int> workspaces;            // Indices into KernelPlan::workspaces.
  std::vector<const ir::Expr*> extents;
  std::vector<const ir::Value*> scalars;
  const ir::Expr* grid = nullptr;  // Independent pieces of work; 0 is legal and runs nothing.
  // Inputs and outputs, by their numbers, that may be one memory: AllowInPlace.
  std::vector<std::pair<size_t, size_t>> in_place = {};
};

struct LoopNest;  // csrc/codegen/loop_nest.h

inline constexpr int64_t kLaunchesMax = 4096;  // Of one plan, which has no more than 512 ops: each reduction makes two.

struct KernelPlan {
  std::string schedule;
  Target target;
  Sizes sizes;  // Those it was planned with.
  std::vector<Launch> launches;
  std::vector<std::shared_ptr<const LoopNest>> nests;  // One a launch.
  std::vector<Workspace> workspaces;
  std::vector<ir::Guard> guards;
};

// Elements between neighbours along each value axis, of inputs and outputs of a group that are a part of a larger
// tensor and have gaps; others are row-major. Expressions of the group's graph.
using Strides = std::unordered_map<const ir::Value*, std::vector<const ir::Expr*>>;  // Lookups only.

// Plans the kernels of `group`, which Accepts, for `target`. `name` starts the kernels' names. Extents are
// expressions of the group's graph. `sizes` choose among schedules; a plan that is wrong for other sizes has guards.
Result<KernelPlan> Plan(const segment::GroupView& group, const std::string& name, const Target& target,
                        const Sizes& sizes, const Strides& strides = {});

// Whether `output` may lie in the memory of `input`: each of its elements is written behind all that is read of the one
// that lies there, of which nothing is read elsewhere. Then the code of `plan` is made so that it is true.
bool AllowInPlace(KernelPlan& plan, const ir::Value& input, const ir::Value& output);

// Code for one plan: bytes a loader of the same backend understands.
struct Artifact {
  std::string bytes;
  std::vector<std::string> kernels;  // The names in it.
};

}  // namespace hir::codegen
