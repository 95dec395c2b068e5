// From a segment to kernels: whether one kernel can hold it, how it is launched, and the loop nest that a backend
// (codegen/cpu, codegen/gpu) turns into code. Nothing here knows a device.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
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
  std::string reason;    // When refused, for `explain`.
  std::string schedule;  // When accepted: "pointwise", "reduction", "normalization", ...
};
Verdict Accepts(const segment::GroupView& group);

// How long the launches of a group take, in bytes: those that pass through the device's memory in that time. Of symbols
// whose sizes are not at hand each counts segment::kUnknownExtent.
struct Cost {
  int64_t bytes = 0;       // Of inputs, as far as they are read, and outputs: each once.
  int64_t again = 0;       // Of inputs that several loops go over and no cache keeps; workspaces, written and read.
  int64_t arithmetic = 0;  // Functions, as often as they are computed: half of segment::PriceOfElement.
  int64_t idle = 0;        // More, where few processors or few of their lanes have work.
  int64_t launches = 0;
  int64_t of_launches = 0;  // The bytes of those.

  // Memory and arithmetic go on at a time.
  int64_t Total() const { return std::max(bytes + again, arithmetic) + idle + of_launches; }
};

// Answers as Accepts, and what they cost, for many groups of one graph, which must not change: it asks of each op once.
// Not thread-safe.
class Acceptance {
 public:
  explicit Acceptance(const Target& target = {}, const Sizes& sizes = {});
  ~Acceptance();
  Verdict Of(const segment::GroupView& group);
  // Nothing: refused. Remembers the last group of so many ops that begins with the same one.
  std::optional<Cost> CostOf(const segment::GroupView& group);
  // 0 of a number of the host.
  int64_t BytesOf(const ir::Value& value);

 private:
  struct Known;
  std::unique_ptr<Known> known_;
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
