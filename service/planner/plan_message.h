// A program's plan as the message that daemon and workers get.
#pragma once

#include <vector>

#include "csrc/codegen/codegen.h"
#include "host_ir/pipeline/pipeline.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// Everything but the artifacts: the host program's text, inputs and outputs, guards, and what `explain` shows.
::hostir::v1::Plan ToMessage(host::ProgramPlan& plan);

}  // namespace hir::service
