// A program's plan as the message that daemon and workers get.
#pragma once

#include <vector>

#include "csrc/codegen/codegen.h"
#include "host_ir/pipeline/pipeline.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// Everything but the artifacts: the host program's text, inputs and outputs, guards, and what `explain` shows.
// `target`, `sizes`: those that it was planned with.
::hostir::v1::Plan ToMessage(host::ProgramPlan& plan, const codegen::Target& target, const codegen::Sizes& sizes);

}  // namespace hir::service
