// The planner process: answers MakePlan messages until its socket ends.
#pragma once

#include "csrc/base/fd.h"
#include "service/planner/pipeline.h"

namespace hir::service {

// `options` but for devices and sizes, which the messages give.
[[noreturn]] void ServePlanner(base::Fd socket, PipelineOptions options);

}  // namespace hir::service
