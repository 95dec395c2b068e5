// From a program as a client sent it to the plan that the daemon and the workers get.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/rank/backends.h"
#include "hostir/v1/plan.pb.h"
#include "multidevice/plan/cost.h"

namespace hir::service {

struct PipelineOptions {
  int64_t num_devices = 1;
  codegen::Target target = {};
  codegen::Sizes sizes = {};         // Values of the program's symbols, where known.
  int64_t resharding_bytes_max = 0;  // Of one resharding on one rank: plan::LocalizeOptions.
  plan::Links links = {};            // Between nodes.
  host::OverlapChoice overlap = host::OverlapChoice::kChosen;
  int loop_streams = 4;      // Over which stream loops rotate.
  std::string backend = {};  // The kind of the devices: who can load what `compile` makes.
  rank::CompileKernels compile = {};
  base::WorkPool* pool = nullptr;  // Its threads compile, too; null: the caller's alone.
  // Called as the plan gets on, one call at a time, from any thread; may be null.
  std::function<void(const ::hostir::v1::PlanProgress&)> progress = {};
};

// Errors: what is wrong with the program, with op, value and the user's location. Deterministic: the same program
// gives the same plan.
// Where sizes choose schedules, a plan without them is provisional (for GPUs without code, too), and one with them
// serves sizes like them.
Result<::hostir::v1::Plan> MakePlan(const ::hostir::v1::ProgramSource& program, const PipelineOptions& options);

}  // namespace hir::service
